"""Tells languages apart, as far as pruning needs it: is a question in its passages' language?"""

from __future__ import annotations

import re
from functools import lru_cache

from tier_router.prune.score import STOP

HEAD = 600
"""Characters of a text that tell its language."""
_LETTERS = re.compile(r"[^\W\d_]+")
_SCRIPTS = (
    ("han", re.compile(r"[㐀-鿿]")),
    ("kana", re.compile(r"[぀-ヿ]")),
    ("hangul", re.compile(r"[가-힯]")),
    ("cyrillic", re.compile(r"[Ѐ-ӿ]")),
    ("greek", re.compile(r"[Ͱ-Ͽ]")),
    ("arabic", re.compile(r"[؀-ۿ]")),
    ("hebrew", re.compile(r"[֐-׿]")),
    ("devanagari", re.compile(r"[ऀ-ॿ]")),
    ("thai", re.compile(r"[฀-๿]")),
    ("latin", re.compile(r"[A-Za-zÀ-ɏ]")),
)

_COMMON = {
    "de": (
        "der die das den dem des ein eine einer einem ist sind war waren wurde wurden und oder "
        "nicht mit von zu zum zur im am auf für wie viele welche welcher welches was wer wo "
        "wann warum bei nach als auch sich es hat haben wird werden aus in durch um über"
    ),
    "es": (
        "el la los las un una de del en y o no que qué es son fue fueron era cuál cuáles "
        "cuántos cuántas quién dónde cuándo cómo por para con su sus se al lo más como entre "
        "sobre a"
    ),
    "fr": (
        "le la les un une des de du en et ou ne pas que qui est sont était quel quelle combien "
        "où quand comment par pour avec son ses se au aux plus dans sur a à été"
    ),
    "it": (
        "il lo la i gli le un una di del della in e o non che è sono era quale quanti chi dove "
        "quando come per con suo si al più nel"
    ),
    "pt": (
        "o a os as um uma de do da em e ou não que é são foi qual quais quantos quem onde "
        "quando como por para com seu se ao mais no na"
    ),
    "nl": (
        "de het een van en of niet dat die is zijn was waren welke wat wie waar wanneer hoe "
        "door voor met op in aan bij te er hoeveel"
    ),
}
_ENGLISH = {"between", "during", "many", "much", "most", "first", "about", "name", "used"}
_WORDS = {"en": STOP | _ENGLISH} | {
    name: frozenset(words.split()) for name, words in _COMMON.items()
}


@lru_cache(4_096)
def language(text: str) -> str:
    """A guess: a script's name, or a language's code for Latin letters; "" where unclear."""
    head = text[:HEAD]
    if head.isascii():
        script = "latin"
    else:
        counts = [(len(found.findall(head)), name) for name, found in _SCRIPTS]
        best, script = max(counts)
        if best == 0:
            return ""
    if script != "latin":
        return "kana" if script == "han" and counts[1][0] > best * 0.1 else script
    words = _LETTERS.findall(head.lower())
    hits = sorted(((sum(w in known for w in words), name) for name, known in _WORDS.items()),
                  reverse=True)  # fmt: skip
    (first, name), (second, _) = hits[0], hits[1]
    return name if first > second and first >= max(1, len(words) * 0.12) else ""
