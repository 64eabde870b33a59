"""Small talk in several languages: what asks for nothing, and what points back."""

import pytest

from tier_router.classify.native import NativeClassifier
from tier_router.classify.talk import continues, courtesy
from tier_router.turn import turn_of

COURTESIES = """\
hi | hello there | thanks! | Thank you so much | thx | ok great | great, thanks | perfect
good morning | Good evening! | how are you? | what's up | thanks, that works now
thanks, the api request error is gone | 👍 | 🙏🙏 | ok thanks | no thanks | bye
see you tomorrow | awesome, it works | hola | muchas gracias | buenos días | gracias por todo
vale, perfecto | danke schön | Guten Morgen | vielen Dank für die Hilfe | tschüss
merci beaucoup | bonjour, ça va ? | obrigado pela ajuda | bom dia | tudo bem? | grazie mille
buongiorno, come stai? | спасибо большое | привет, как дела? | شكرا جزيلا | مرحبا | السلام عليكم
你好 | 谢谢你 | 好的，谢谢 | 太好了，谢谢你的帮助 | ありがとうございます | こんにちは
了解です、ありがとう | 안녕하세요 | 감사합니다"""
CONTINUED = """\
yes | yes, do it | Yes please | no | ok | sure, go ahead | go on | continue | Continue.
and the second one? | do the same for the other file | same for Germany
now do the same for Rust | why? | why not? | are you sure? | the first one | option 2 | 2 | b
tell me more | try again | what about Spain? | fix it | more details please | thanks, continue
ok, do it | and then? | great, now do the same for the others | what do you mean? | sí, hazlo
sigue | ¿y el segundo? | lo mismo para Italia | ja, mach das | weiter | und der zweite?
mach das gleiche für Python | oui, vas-y | continue s'il te plaît | et le deuxième ?
la même chose pour la France | sim, faça isso | e o segundo? | sì, fallo | e il secondo?
да, сделай это | продолжай | а второй? | نعم | استمر | 继续 | 好的，继续 | 然后呢？ | 第二个呢？
为什么？ | 对 | はい、お願いします | 続けて | 二つ目は？ | 네, 계속해줘 | 계속 | 두 번째는?"""
NEITHER = """\
what is the capital of France | prove that 2 is prime | thanks, now prove the theorem
hi, how do I reset my password? | thanks. The second test fails with a KeyError
yes or no: is the sky blue? | what does git commit do? | write a haiku | hello world in python
continue statement in java | next js routing example | what is my balance | 证明根号2是无理数
今天天气怎么样 | why is the sky blue? | no module named numpy | the second law of thermodynamics
in python how do I sort a list | translate thanks to german | 第二次世界大战什么时候开始
为什么天是蓝的 | 好的餐厅推荐 | explain recursion | the last king of France
and gate truth table | no, the balance of my savings account | thank you but it still fails"""


def _split(texts: str) -> list[str]:
    return [text.strip() for line in texts.splitlines() for text in line.split("|")]


@pytest.mark.parametrize("text", _split(COURTESIES))
def test_courtesies_ask_for_nothing_and_are_easy(native: NativeClassifier, text: str) -> None:
    verdict = native.classify(turn_of(text))
    assert verdict.courtesy
    assert not verdict.continues
    assert verdict.abstain is None
    assert verdict.difficulty < 0.05


@pytest.mark.parametrize("text", _split(CONTINUED))
def test_what_only_makes_sense_with_the_turn_before(native: NativeClassifier, text: str) -> None:
    verdict = native.classify(turn_of(text))
    assert verdict.continues
    assert not verdict.courtesy


@pytest.mark.parametrize("text", _split(NEITHER))
def test_what_speaks_for_itself(text: str) -> None:
    assert not courtesy(text)
    assert not continues(text)


def test_a_paste_is_never_small_talk(native: NativeClassifier) -> None:
    log = "\n".join(f"2026-11-03 10:00:{i:02d} ERROR lost lease {i}" for i in range(50))
    verdict = native.classify(turn_of("yes\n" + log))
    assert not verdict.continues
    assert not verdict.courtesy
