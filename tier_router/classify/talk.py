"""Small talk: turns that ask for nothing, and turns that only make sense with the one before.

Phrases of a few languages, compared after case, accents' neighbours (punctuation) and spacing are
set aside.  Only short turns are looked at: a long one says enough by itself.
"""

from __future__ import annotations

import re

from tier_router.classify.text import words_of

LONGEST = 14
LONGEST_CHARS = LONGEST * 12
"""Words, and characters, of a turn that may be small talk."""
SHORT = 8
"""Words of a turn that begins by pointing back ("and for ...") and says little more."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_SMILES = re.compile(
    "[\u2600-\u27bf\U0001f300-\U0001faff\u2b50\u200d\ufe0f\U0001f3fb-\U0001f3ff\\s!.:;()D^_-]+"
)
_GLAD = re.compile("[👍👌🙏🙌👏🎉❤💯😀-😆😊😍🥰🤩😎🚀✅✨💪🔥]")

_THANKS = """
    thanks thank thx ty tysm cheers appreciated appreciate gracias danke dank vielen dankeschön
    merci obrigado obrigada valeu grazie спасибо благодарю شكرا شكراً
"""
_GREETINGS = """
    hi hello hey hiya yo howdy greetings hola buenas buenos hallo servus moin guten bonjour
    salut bonsoir coucou olá oi bom boa ciao buongiorno buonasera buonanotte salve привет
    здравствуйте здравствуй добрый доброе добрая доброй مرحبا أهلا السلام bye goodbye tschüss
    adiós arrivederci tchau пока
"""
_PRAISE = """
    great perfect awesome cool nice wonderful excellent brilliant amazing fantastic lovely super
    neat sweet perfecto genial excelente estupendo prima klasse parfait génial perfeito ótimo
    perfetto ottimo отлично супер прекрасно ممتاز رائع lol haha welcome
"""
_FILLERS = """
    you so much very a lot for the your all that this help it is was to me my and there everyone
    team again good morning afternoon evening night day one work job ok okay well just really
    muchas muchísimas mil por todo la ayuda tu su de días tardes noches muy bien y vale todos
    hasta luego mañana schön vielen dank sehr gut für die hilfe deine ihre und tag morgen abend
    nacht zusammen beaucoup pour ton votre aide tout le monde et à bientôt nuit muito muita pela
    sua ajuda dia tarde noite até logo mille molto per l'aiuto aiuto bene e domani tutti большое
    за помощь вам тебе огромное очень день утро вечер ночи хорошо لك جزيلا جزيلاً عليكم صباح
    مساء الخير النور see later tomorrow how are today going doing how's what's up things been
    have nice weekend enjoy mate man buddy guys folks friend dear i got understood in advance
    bis bald später до свидания journée bonne meet it's cómo estás está usted qué tal wie geht's
    geht es dir ihnen ça va comment allez vous tudo bem você como come vai stai как дела ты вы
    كيف حالك
"""
_RESOLVED = """
    works worked working gone fixed solved resolved helped helps helpful fine better clear
    understand understood makes sense green passes pass runs running found done funciona
    resuelto funktioniert geklappt klappt läuft gelöst marche résolu fonctionne funcionou
    resolvido funziona risolto работает заработало помогло يعمل
"""
_MORE = """
    but however still not doesn't isn't didn't don't won't can't can could would how what why
    when where which who please next also another fails failing failed error? wrong instead if
    pero aún cómo qué por aber noch nicht wie was warum bitte mais encore pas comment pourquoi
    mas ainda não ma ancora non perché но ещё еще не как почему
"""

_YES = """
    yes yeah yep yup ya sure ok okay okey k right correct exactly absolutely definitely agreed
    no nope nah sí sì si claro vale dale ja jawohl genau klar nein oui ouais d'accord non sim
    não certo va да нет ага угу конечно ладно хорошо نعم لا أجل طيب both neither either
"""
_GO = """
    please do it that this so go ahead on for continue proceed just the thing now then next more
    again let's lets carry keep going i'm one with all of them por favor hazlo hágalo adelante
    sigue siga continúa continúe continua continuar mach machen sie das es bitte weiter los fahr
    fort gerne vas y allez fais faites le s'il te vous plaît faça isso pode segue em frente
    fallo lo fai pure avanti vai continui procedi сделай делай сделайте это давай давайте
    продолжай продолжайте дальше далее пожалуйста افعل ذلك تابع استمر أكمل من فضلك تفضل
"""

_ALONE = {
    "why", "why not", "how", "how so", "how come", "so", "and", "and then", "and now", "what then",
    "what else", "anything else", "what next", "whats next", "what's next", "really",
    "are you sure", "is that all", "is that right", "is that correct", "what do you mean",
    "what does that mean", "what does this mean", "how do you mean", "in what way", "like what",
    "such as", "for example", "an example", "example", "examples", "example please",
    "another", "another one", "one more", "one more time", "next", "next one", "next step", "more",
    "more please", "more details", "more detail", "in more detail", "tell me more", "say more",
    "go deeper", "elaborate", "please elaborate", "can you elaborate", "could you elaborate",
    "explain", "explain more", "explain again", "explain further", "explain that", "explain it",
    "go on", "go ahead", "keep going", "carry on", "continue", "continue please", "proceed",
    "please continue", "do it", "do that", "do so", "try again", "try it", "try that", "again",
    "retry", "redo", "redo it", "once more", "start", "begin", "finish it", "fix it", "fix that",
    "fix this", "fix them", "undo that", "the same", "same", "same here", "same again",
    "same thing", "the first", "the second", "the third", "the last", "the former", "the latter",
    "the other", "the rest", "all of them", "all", "none", "none of them", "i don't know",
    "not sure", "maybe", "perhaps", "it depends", "whatever", "you decide", "your choice",
    "as you like", "sounds good", "looks good", "lgtm", "makes sense", "got it", "i see", "done",
    "wait", "stop", "hm", "hmm", "huh", "que", "por qué", "y ahora", "y luego", "y después",
    "y el segundo", "y la segunda", "otra vez", "otro", "otra", "lo mismo", "más", "más detalles",
    "warum", "wieso", "und", "und dann", "und jetzt", "nochmal", "noch einmal", "noch eins", "mehr",
    "mehr details", "das gleiche", "dasselbe", "pourquoi", "et", "et ensuite", "et après",
    "et maintenant", "encore", "encore une fois", "plus de détails", "la même chose", "pareil",
    "la suite", "e agora", "e depois", "de novo", "outra vez", "mais", "mais detalhes", "o mesmo",
    "perché", "e poi", "e adesso", "ancora", "di nuovo", "più dettagli", "lo stesso", "почему",
    "а дальше", "и что дальше", "ещё", "еще", "ещё раз", "еще раз", "подробнее", "то же самое",
    "لماذا", "مرة أخرى", "المزيد", "ثم", "والثاني",
}  # fmt: skip

# What stands for something said before: at the start of a short turn.
_OPENERS = re.compile(
    r"(?:(?:ok|okay|yes|no|great|thanks|now|then|and|so|please|also|good|perfect|well|right) )*"
    r"(?:"
    r"(?:now |then |please |also |can you |could you )*(?:do|try|repeat|make|apply|use|run) "
    r"(?:the |exactly the )?same\b"
    r"|(?:the )?same (?:for|with|in|but|thing|as)\b"
    r"|(?:and|but|so) (?:the|for|in|with|if|what about|how about|why|when|where|then) ?"
    r"|(?:what|how) about (?:the|that|this|it|them|those|these|others?|in|for|with|if|\w+$)"
    r"|(?:the|take|use|pick|choose|prefer|try|go with|show me|give me|do|i want|i choose) "
    r"(?:the )?(?:first|second|third|fourth|last|next|previous|other|former|latter)"
    r"(?: (?:one|option|version|approach|part|step|point|example))?$"
    r"|(?:option|number|version|step|part|answer|choice|point) (?:\d+|[a-e]|one|two|three)$"
    r"|(?:i (?:meant|mean)|no,? i|that's not|that is not|it still|still (?:not|the same|fails))\b"
    r"|(?:in|to) (?:english|french|german|spanish|python|rust|go|java|javascript|simpler terms"
    r"|other words|one sentence)$"
    r"|(?:y|haz|hazlo|repite) (?:el|la|los|las|para|con|en|lo mismo|si|qué pasa)\b"
    r"|lo mismo (?:para|con|en)\b"
    r"|(?:und|mach|mache) (?:der|die|das|den|für|mit|bei|was ist mit|wenn|dasselbe|das gleiche)\b"
    r"|(?:das gleiche|dasselbe) (?:für|mit|in)\b"
    r"|(?:et|fais) (?:le|la|les|pour|avec|en|si|la même chose|pareil|celui)\b"
    r"|(?:la même chose|pareil|idem) (?:pour|avec|en)\b"
    r"|(?:e|faça|fai) (?:o|a|os|as|il|la|lo|i|gli|le|para|per|com|con|o mesmo|lo stesso|se)\b"
    r"|(?:o mesmo|lo stesso) (?:para|per|com|con)\b"
    r"|(?:а|и) (?:второй|вторая|второе|первый|первая|для|если|что насчёт|как насчёт|в)\b"
    r"|(?:то же самое|сделай то же)\b"
    r"|(?:وماذا عن|نفس الشيء|افعل نفس)"
    r")"
)
_CJK_GO = re.compile(
    r"(?:好的?|嗯|是的?|对|對|行|可以|没问题|不是?|请|請|那|那么|就){0,4}"
    r"(?:继续|繼續|接着说|然后呢|然後呢|还有呢|还有吗|再来一个|再来一次|再说一遍|再详细一点|详细点|更详细"
    r"|做吧|就这样做|就这么做|开始吧|第[一二三四五\d]个(?:呢)?|另一个(?:呢)?|为什么|為什麼|举个例子|比如"
    r"|同样的?.{0,8}|那.{1,6}呢|确定吗|你确定吗)(?:吧|吗|呢|呀|啊|请){0,3}"
    r"|(?:好的?|嗯|是的?|对|對|行|可以|不是?|没有|有)"
    r"|(?:はい|うん|ええ|いいえ|ok|お願いします|、|では|じゃあ|それでは){0,4}"
    r"(?:はい|いいえ|続けて(?:ください)?|続き(?:を)?|次(?:は|を)?|お願いします|それで|もう一度|もっと詳しく"
    r"|なぜ|どうして|例えば|やって(?:ください)?|同じ.{0,8}|.{1,6}の方は|[二2]つ目は)"
    r"|(?:네|예|응|아니요?|그래|좋아요?){0,4}"
    r"(?:네|예|응|아니요?|그래|계속(?:해줘|하세요|해주세요|해)?|해줘|해주세요|다음(?:은)?"
    r"|더자세히|왜|다시(?:해줘)?|예를들면|똑같이.{0,8}|두번째는)"
)
_CJK_POLITE = """
    你好 您好 大家好 嗨 哈喽 早上好 早安 中午好 下午好 晚上好 晚安 再见 再見 拜拜 谢谢 謝謝 多谢
    感谢 非常 十分 太 很好 好 好的 棒 完美 不错 辛苦 明白 知道 懂 搞定 解决 可以 没问题 了 你 您
    的 帮助 帮忙 啦 啊 呀 ありがとう ありがとお ありがと ございます ございました どうも こんにちは
    こんばんは おはよう おやすみ なさい さようなら すごい 完璧 です 了解 わかりました 助かりました
    とても いい ね 안녕 하세요 하십니까 히 가세요 계세요 감사 합니다 해요 고마워 고맙습니다 요
    좋아 좋은 아침 이에요 완벽 정말 네 잘 가
"""
# The longest first, and possessive: phrases overlap, and trying every split would take for ever.
_CJK_COURTESY = re.compile(
    "(?:" + "|".join(sorted(_CJK_POLITE.split(), key=len, reverse=True)) + ")++"
)
_CJK_CORE = re.compile(
    r"你好|您好|大家好|嗨|早上好|早安|下午好|晚上好|晚安|再见|再見|拜拜|谢谢|謝謝|多谢|感谢|很好|太棒|太好|完美|不错|辛苦"
    r"|明白|知道|ありがと|どうも|こんにちは|こんばんは|おはよう|おやすみ|さようなら|すごい|完璧|了解|わかりました"
    r"|助かりました|안녕|감사|고마|고맙|완벽"
)
_PUNCTUATION = re.compile(r"[\s\W_]+")
_HAS_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CHOICE = re.compile(r"(?:\d{1,3}|[a-e])")


def _set(*lists: str) -> frozenset[str]:
    return frozenset(" ".join(lists).split())


_CORE = _set(_THANKS, _GREETINGS, _PRAISE)
_GOOD = _set(_THANKS, _PRAISE)
_SOLVED, _FURTHER = _set(_RESOLVED), _set(_MORE)
_YES_WORDS, _GO_WORDS = _set(_YES), _set(_GO)
_POLITE = _set(_THANKS, _GREETINGS, _PRAISE, _FILLERS, _YES)
_YES_OR_GO = _YES_WORDS | _GO_WORDS
_OPEN_WORDS = _set(_YES, _THANKS, _PRAISE, "now then please and so but also great thank you")
_HELLO = re.compile(
    r"(?:good (?:morning|afternoon|evening|night|day)|how(?: are|'re) (?:you|things)|how's it going"
    r"|what's up|nice to meet you|see you|got it|i see|understood|buenos días|buenas|hasta luego"
    r"|cómo estás|wie geht|bis (?:bald|morgen|später)|schönen tag|ça va|à bientôt|comment allez"
    r"|bonne (?:nuit|journée)|tudo bem|até logo|come (?:stai|va)|a domani|как дела|до свидания"
    r"|كيف حالك|صباح الخير|مساء الخير)\b"
)


def kind_of(text: str) -> str | None:
    """ "courtesy" or "continues" where `text` is one of them, looked at once."""
    if len(text) > LONGEST_CHARS:
        return None
    words = _words(text)
    if _courtesy(text, words):
        return "courtesy"
    return "continues" if _continues(text, words) else None


def courtesy(text: str) -> bool:
    """Whether `text` greets, thanks or praises and asks for nothing."""
    return len(text) <= LONGEST_CHARS and _courtesy(text, _words(text))


def continues(text: str) -> bool:
    """Whether `text` only makes sense with what was said before it."""
    return len(text) <= LONGEST_CHARS and _continues(text, _words(text))


def _courtesy(text: str, words: list[str]) -> bool:
    if not text.isascii() and _HAS_CJK.search(text):
        bare = _PUNCTUATION.sub("", text)
        return bool(_CJK_COURTESY.fullmatch(bare) and _CJK_CORE.search(bare))
    if not words:
        return bool(_GLAD.search(text) and _SMILES.fullmatch(text))
    if len(words) > LONGEST:
        return False
    if _POLITE.issuperset(words):
        return not _CORE.isdisjoint(words) or bool(_HELLO.match(" ".join(words)))
    starts = words[0] in _GOOD or words[:2] in (["that", "works"], ["that", "worked"])
    if not starts or "?" in text or "؟" in text or not _FURTHER.isdisjoint(words):
        return False
    return not _SOLVED.isdisjoint(words)


def _continues(text: str, words: list[str]) -> bool:
    if not text.isascii() and _HAS_CJK.search(text):
        return bool(_CJK_GO.fullmatch(_PUNCTUATION.sub("", text.lower())))
    if not words or len(words) > LONGEST:
        return False
    phrase = " ".join(words)
    if phrase in _ALONE or (len(phrase) <= 3 and _CHOICE.fullmatch(phrase)):
        return True
    if words[0] in _YES_WORDS and _YES_OR_GO.issuperset(words):
        return True
    if len(words) == 1:
        return phrase in _SINGLE
    if _GO_WORDS.issuperset(words):
        return True
    start, end = 0, len(words) - (words[-1] in _PLEASE)
    while start < end and words[start] in _OPEN_WORDS:
        start += 1
    rest = words[start:end]
    if " ".join(rest) in _ALONE or (len(rest) == 1 and rest[0] in _SINGLE):
        return True
    if start and rest and _GO_WORDS.issuperset(rest):
        return True
    return len(words) <= SHORT and bool(_OPENERS.match(phrase))


_PLEASE = frozenset(["please", "bitte", "favor", "plaît"])
_SINGLE = frozenset(
    [
        "continue",
        "proceed",
        "next",
        "more",
        "again",
        "go",
        "continúa",
        "continúe",
        "continua",
        "sigue",
        "siga",
        "adelante",
        "hazlo",
        "weiter",
        "weitermachen",
        "continuez",
        "continue",
        "vas-y",
        "continuer",
        "prossiga",
        "segue",
        "avanti",
        "procedi",
        "continui",
        "продолжай",
        "продолжайте",
        "дальше",
        "далее",
        "давай",
        "сделай",
        "تابع",
        "استمر",
        "أكمل",
    ]
)


def _words(text: str) -> list[str]:
    """The words in lower case, contractions whole."""
    low = text.lower()
    if low.isascii() and "'" not in low:
        return words_of(low)
    return [word.replace("’", "'") for word in _WORD.findall(low)]
