"""Retrieved passages: what is recognised, what stays, and when nothing is touched."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.prune.tools import (
    PASSAGES,
    Router,
    called,
    chat,
    planned,
    pruned,
    retrieved,
    settings,
    user,
)
from tier_router.config.pruning import Rag, Step
from tier_router.encoder import load
from tier_router.prune.language import language
from tier_router.prune.plan import Plan
from tier_router.prune.recognise import LEFT_OUT, block_of, is_code
from tier_router.prune.score import Scorer, Weighed, bm25, coverage, query_terms, terms, words
from tier_router.prune.steps.rag import Choice, choose

QUESTION = "On which island is the volcano Mount Etna?"


def reasons(made: Plan) -> list[str]:
    return [each.reason for each in made.abstained if each.step is Step.RAG]


@pytest.mark.parametrize("style", ["document", "number", "tag", "source", "paragraph"])
def test_passages_are_recognised_as_people_write_them(style: str) -> None:
    text = retrieved(QUESTION, style=style)
    block = block_of(text)
    assert block is not None
    assert len(block.segments) == len(PASSAGES)
    assert [each.title for each in block.segments] == [title for title, _ in PASSAGES]
    assert QUESTION in text[block.end :]


@pytest.mark.parametrize("style", ["document", "number", "tag", "source", "paragraph"])
@pytest.mark.parametrize("vectors", [False, True])
def test_what_the_question_asks_for_stays_and_the_rest_leaves_a_note(
    style: str, vectors: bool
) -> None:
    body = chat(user(retrieved(QUESTION, style=style)))
    scorer = Scorer(load()) if vectors else Scorer()
    sent = pruned(body, scorer=scorer)["messages"][0]["content"]
    assert "east coast of Sicily" in sent
    assert "casein" not in sent
    assert LEFT_OUT in sent
    assert sent.endswith(f"Question: {QUESTION}")


def test_numbers_of_kept_passages_stay_for_citations() -> None:
    sent = pruned(chat(user(retrieved(QUESTION))))["messages"][0]["content"]
    assert "Document [4](Title: Mount Etna)" in sent
    assert "5 of 8 passages (2, 3, 5, 6, 7)" in sent or "of 8 passages (" in sent


def test_twice_pruned_is_once_pruned() -> None:
    once = pruned(chat(user(retrieved(QUESTION))))
    assert pruned(once) is once


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Summarise these documents", "asks for all"),
        ("Compare the instruments", "asks for all"),
        ("How do they differ, for each of them?", "asks for all"),
        ("Wie heißt der Berg auf der Insel?", "language"),
        ("xylographic quasar entropy manifold?", "coverage"),
        ("", "no question"),
    ],
)
def test_it_abstains(question: str, reason: str) -> None:
    text = retrieved(question)
    if not question:
        text = text.replace("Answer from these.", "").replace("Question: ", "")
    body = chat(user(text))
    made = planned(body)
    assert not made.changes
    assert reasons(made) == [reason]


def test_code_is_left_alone() -> None:
    code = "def f(x):\n    return x\nimport os\nclass A:\n    pass\n" * 3
    body = chat(user(retrieved("what does f return", [(f"f{n}.py", code) for n in range(6)])))
    made = planned(body)
    assert not made.changes
    assert is_code(code)


def test_a_passage_with_a_fence_stays() -> None:
    fenced = [*PASSAGES[:5], ("Snippet", "look here ```python\nx = 1\n``` and more of the text")]
    sent = pruned(chat(user(retrieved(QUESTION, fenced))))["messages"][0]["content"]
    assert "```python\nx = 1\n```" in sent


@pytest.mark.parametrize(
    "text",
    [
        "Do these:\n1. one thing\n2. another thing\n3. a third\n4. a fourth",
        "[1] a\n[2] b\n[3] c\n[4] d",
        "Context:\nOnly one paragraph of it, which is long enough to be looked at.\n\nQuestion: x?",
        "A letter.\n\nWith paragraphs.\n\nAnd more of them.\n\nAnd an end to it, at last, yes.",
    ],
)
def test_lists_and_letters_are_no_passages(text: str) -> None:
    assert block_of(text) is None


def test_a_question_between_passages_makes_no_block() -> None:
    one = retrieved(QUESTION)
    assert block_of(f"{one}\n\n{one}") is None


def test_other_text_of_a_human_is_never_touched() -> None:
    body = chat(user("Etna " * 500), user([{"type": "text", "text": "word  \n" * 300}]))
    assert pruned(body) is body


def test_list_content_stays_a_list_and_images_stay() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = chat(user([image, {"type": "text", "text": retrieved(QUESTION)}, image]))
    sent = pruned(body)["messages"][0]["content"]
    assert sent[0] is image
    assert sent[2] is image
    assert LEFT_OUT in sent[1]["text"]


def test_a_search_tools_result_is_judged_by_its_call() -> None:
    found = retrieved("").replace("Answer from these.\n\n", "").replace("\n\nQuestion: ", "")
    body = chat(user("hm"), called("1", "search", found, query="volcano on the island of Sicily"))
    sent = pruned(body)["messages"][2]["content"]
    assert "Mount Etna" in sent
    assert "casein" not in sent


def test_titles_link_the_second_hop() -> None:
    chain = [
        ("Emarosa", "Emarosa is a rock band whose singer was Jonny Craig for several years."),
        ("Jonny Craig", "He was born in Minot, North Dakota, and sings in a range of voices."),
        *PASSAGES[:7],
    ]
    question = "Where was the singer of the rock band Emarosa born?"
    sent = pruned(chat(user(retrieved(question, chain))))["messages"][0]["content"]
    assert "Minot, North Dakota" in sent
    assert LEFT_OUT in sent


def test_the_same_message_gives_the_same_bytes_whatever_follows() -> None:
    first = user(retrieved(QUESTION))
    alone = pruned(chat(first))["messages"][0]
    answer = {"role": "assistant", "content": "Sicily"}
    later = pruned(chat(first, answer, user("And chess? " * 9)))["messages"][0]
    assert alone == later


def test_passages_that_others_ask_of_too_are_sent_whole_in_the_end() -> None:
    questions = [f"What is {title.lower()}?" for title, _ in PASSAGES]
    router = Router()
    whole = [router.send(chat(user(retrieved(each))))[0].changes for each in questions]
    assert whole[0], "the first is pruned: nobody knows that more will come"
    assert not all(whole), "then the whole block goes out once, and is cached for all"
    made, _ = router.send(chat(user(retrieved("Who plays the clarinet?"))))
    assert made.uncached_after < 200, "all but the last piece"


def test_unproven_passages_are_only_observed() -> None:
    from tier_router.prune.plan import Known

    body = chat(user(retrieved(QUESTION)))
    made = planned(body, known=Known())
    assert not made.changes
    assert [edit.step for edit in made.observed] == [Step.RAG]
    assert any("casein" in text for text in made.observed[0].dropped)


def test_a_language_is_told_where_it_matters() -> None:
    assert language("Where is the house of my friend?") == "en"
    assert language("Wo ist das Haus von meinem Freund und wer wohnt da?") == "de"
    assert language("¿Dónde está la casa de los amigos?") == "es"
    assert language("朋友的家在哪里") == "han"
    assert language("友達の家はどこですか") == "kana"
    assert language("где дом") == "cyrillic"
    assert language("12345 !!") == ""


def test_words_of_unspaced_scripts_are_pairs() -> None:
    assert "东京" in words("我在东京")
    assert query_terms("我在东京的哪里")
    assert terms("boats ladies glass bus").counts == {"boat": 1, "lady": 1, "glass": 1, "bus": 1}


def test_bm25_prefers_rare_words_and_short_passages() -> None:
    passages = [terms(text) for text in ("a b b c", "a x", "a y y y y y z")]
    scores = bm25(["a", "x"], passages)
    assert max(scores) == scores[1]
    assert coverage(["a", "q"], passages) == 0.5
    assert bm25(["q"], passages) == [0.0, 0.0, 0.0]


def test_vectors_find_what_words_do_not() -> None:
    passages = [("", "The physician cured the patient."), ("", "The car drove to the station.")]
    scores = Scorer(load()).scores("doctor", passages)
    assert scores[0] > scores[1]
    assert Scorer().scores("doctor", passages) == [0.0, 0.0]


class Fixed(Scorer):
    """Says what it is told to."""

    def __init__(self, scores: Sequence[float], evidence: Sequence[float]) -> None:
        super().__init__()
        self.told = Weighed(tuple(scores), tuple(evidence))

    def weighed(self, *_: object) -> Weighed:
        return self.told


def kept(scores: Sequence[float], evidence: Sequence[float] = ()) -> Choice:
    block = block_of(retrieved(QUESTION))
    assert block is not None
    rag = Rag.model_validate({"relative": 0.7, "min_keep": 1, "title_links": False})
    return choose(block, "Etna volcano island", rag, Fixed(scores, evidence))


def test_the_less_speaks_for_the_best_passage_the_more_stay() -> None:
    scores = [1.0, 0.6, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0][: len(PASSAGES)]
    rest = [0.0] * (len(PASSAGES) - 1)
    assert kept(scores).kept == {0, 1}  # nobody knows what speaks for it
    assert kept(scores, [9.0, *rest]).kept == {0}
    assert kept(scores, [1.0, *rest]).kept == {0, 1}
    assert kept(scores, [0.5, *rest]).kept == {0, 1, 2}


def test_passages_that_are_hardly_told_apart_all_stay() -> None:
    few, most = ([0.0] * gone + [1.0] * (len(PASSAGES) - gone) for gone in (2, 1))
    assert len(kept(few).kept) == len(PASSAGES) - 2
    assert kept(most).reason == "flat"


def test_switched_off_it_looks_at_nothing() -> None:
    made = planned(chat(user(retrieved(QUESTION))), settings(rag="off"))
    assert not [each for each in (*made.edits, *made.abstained) if each.step is Step.RAG]
