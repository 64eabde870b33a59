"""The static encoder: the same text gives the same vector, whatever was read before."""

import hashlib
import multiprocessing
import threading

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tier_router import encoder
from tier_router.encoder import TABLE, StaticEncoder

ODD = [
    "",
    " \t\n ",
    "\x00",
    "a\x00b",
    "\ud800",
    "half \udfff a pair \ud83d",
    "🤷🏽‍♀️🎉",
    "שלום עולם",
    "مرحبا بالعالم",
    "สวัสดีชาวโลก",
    "今天天气怎么样",
    "e\u0301 and \u200b\ufeff",
    "A" * 5_000,
    "=" * 300,
    "?!…",
]


@pytest.fixture(scope="module")
def shared() -> StaticEncoder:
    return encoder.load()


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text)[:20])
def test_any_text_has_a_finite_vector(shared: StaticEncoder, text: str) -> None:
    found = shared.encode(text)
    assert found.vector.shape == (shared.dim,)
    assert np.isfinite(found.vector).all()
    norm = float(np.linalg.norm(found.vector))
    assert norm == pytest.approx(1, abs=1e-4) or norm == 0
    assert 0 <= found.known <= 1


def test_empty_text_is_no_words(shared: StaticEncoder) -> None:
    found = shared.encode("")
    assert (found.words, found.tokens, found.known) == (0, 0, 0.0)
    assert not found.vector.any()


def test_counts(shared: StaticEncoder) -> None:
    found = shared.encode("the balance of zxqvwk")
    assert found.words == 4
    assert found.whole == 3
    assert found.rare >= 1
    assert found.known == 1.0  # word pieces know letters


def test_the_same_text_gives_the_same_vector_first_and_later() -> None:
    text = "a flumphous gribble, unheard of"
    fresh = StaticEncoder()
    first = fresh.encode(text)
    second = fresh.encode(text)
    other = StaticEncoder()
    other.encode("gribble of words in another order flumphous")
    np.testing.assert_allclose(first.vector, second.vector, atol=1e-6)
    np.testing.assert_allclose(first.vector, other.encode(text).vector, atol=1e-6)


def test_case_does_not_matter(shared: StaticEncoder) -> None:
    np.testing.assert_array_equal(
        shared.encode("What Is My Balance").vector, shared.encode("what is my balance").vector
    )


def test_our_word_pieces_are_the_tokenizers(shared: StaticEncoder) -> None:
    words = ["unaffable", "perpendicularity", "zxqvw", "2026", "x86", "jellyfish", "tokenization"]
    words += ["e4x", "prestidigitation", "007bond", "kubernetes", "grpc", "mkdir", "ucc", "2711"]
    words += [f"{a}{b}" for a in ("re", "un", "zz", "9") for b in ("plan", "qu", "7", "light")]
    words += [
        "überraschung",
        "écoute",
        "привет",
        "ёлка",
        "你好世界",
        "計算x2",
        "ひらがな",
        "안녕하세요",
    ]
    words += ["مرحبا", "नमस्त", "ไทย", "²", "ⅷ", "٣٤", "ﬁne", "straße", "ŉ", "𝒳𝓎", "x²y", "a好b"]
    words += [hashlib.sha256(bytes([i])).hexdigest() for i in range(20)]
    tokenizer = Tokenizer(models.WordPiece(vocab=shared._ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wanted = tokenizer.encode_batch_fast(words, add_special_tokens=False)
    assert [shared._pieces(word) for word in words] == [found.ids for found in wanted]


def test_a_word_without_a_space_costs_few_look_ups(shared: StaticEncoder) -> None:
    class Counting(dict[str, int]):
        asked = 0

        def get(self, key: str, default: int | None = None) -> int | None:  # type: ignore[override]
            Counting.asked += 1
            return super().get(key, default)

    one = StaticEncoder(words=8)
    one._ids, one._inner = Counting(one._ids), Counting(one._inner)
    one.encode(hashlib.sha256(b"x").hexdigest())
    assert 0 < Counting.asked < 4 * encoder.WORD_CHARS  # trying every length asks 800 times


def test_frequent_words_are_there_from_the_start() -> None:
    fresh = StaticEncoder()
    known, memory = fresh._memory
    words = ["what", "balance", "theorem", "patient"]
    assert all(word in known for word in words)
    learnt = fresh._rows_of(words)
    np.testing.assert_array_equal(learnt, memory[[known[word] for word in words]])


def test_of_many_words_the_first_and_last_count(shared: StaticEncoder) -> None:
    ends = ["start"] * encoder.HEAD, ["end"] * encoder.TAIL
    short, long = (shared.of_words([*ends[0], *mid, *ends[1]]) for mid in ([], ["middle"] * 500))
    np.testing.assert_array_equal(short.vector, long.vector)


def test_related_words_are_nearer(shared: StaticEncoder) -> None:
    car, truck, poem = shared.matrix(["car", "truck", "poem"])
    assert car @ truck > car @ poem


def test_matrix_of_nothing(shared: StaticEncoder) -> None:
    assert shared.matrix([]).shape == (0, shared.dim)


def test_a_full_word_table_starts_over() -> None:
    small = StaticEncoder(words=8)
    texts = [f"word{i} number{i} three" for i in range(40)]
    before = [small.encode(text).vector for text in texts]
    after = [small.encode(text).vector for text in texts]
    np.testing.assert_allclose(before, after, atol=1e-6)
    assert int(repr(small).split()[-2]) <= 8


def test_threads_that_learn_at_once_agree() -> None:
    one = StaticEncoder(words=64)  # small: threads start it over under each other's feet
    reference = StaticEncoder()
    texts = [f"thing{i % 97} in place{i % 13} of topic{i % 29}" for i in range(300)]
    wanted = [reference.encode(text).vector for text in texts]
    wrong: list[str] = []

    def work(offset: int) -> None:
        for shift in range(len(texts)):
            at = (shift + offset) % len(texts)
            if not np.allclose(one.encode(texts[at]).vector, wanted[at], atol=1e-5):
                wrong.append(texts[at])

    threads = [threading.Thread(target=work, args=(i * 71,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _child(queue: "multiprocessing.Queue[list[float]]") -> None:
    queue.put(
        encoder.load().encode("words the child has never seen: quibblesnatch").vector.tolist()
    )


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system"
)
def test_a_forked_child_reads_on_even_where_the_lock_was_held() -> None:
    shared = encoder.load()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with shared._lock:  # as if another thread was writing when the process forked
        child = context.Process(target=_child, args=(queue,))
        child.start()
    found = queue.get(timeout=30)
    child.join(30)
    wanted = shared.encode("words the child has never seen: quibblesnatch").vector
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_the_table_is_small() -> None:
    assert TABLE.stat().st_size < 8_000_000
