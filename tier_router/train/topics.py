"""The fields that the static vectors are asked about, and how their linear scores are fitted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tier_router.train.data import Row

TOPICS = (
    "math", "science", "life", "law", "economy", "society", "computing", "trivia", "stories",
    "errands", "banking", "smalltalk", "office",
)  # fmt: skip
"""Names of the scores, in order."""

RIDGE = 2.0
"""L2 penalty, in rows: a choice, not searched."""

_MEMBERS = {
    "math": "math abstract_algebra college_mathematics high_school_mathematics "
    "elementary_mathematics high_school_statistics formal_logic proof",
    "science": "physics chemistry engineering college_physics college_chemistry astronomy "
    "conceptual_physics electrical_engineering high_school_physics high_school_chemistry",
    "life": "biology health anatomy clinical_knowledge college_biology college_medicine "
    "high_school_biology human_aging medical_genetics nutrition professional_medicine virology "
    "clinical",
    "law": "law professional_law international_law jurisprudence legal",
    "economy": "business economics econometrics high_school_macroeconomics management marketing "
    "high_school_microeconomics professional_accounting business_ethics",
    "society": "history philosophy psychology high_school_european_history high_school_us_history "
    "high_school_world_history high_school_psychology professional_psychology moral_disputes "
    "prehistory sociology us_foreign_policy world_religions security_studies public_relations "
    "high_school_government_and_politics human_sexuality logical_fallacies",
    "computing": "computer_science computer_security machine_learning college_computer_science "
    "high_school_computer_science human_eval mbpp engineering_own",
    "trivia": "trivia_qa natural_qa miscellaneous global_facts high_school_geography lookup",
    "stories": "moral_scenarios commonsense_qa agentverse-logicgrid",
    "smalltalk": "smalltalk thanks",
    "office": "rewrite developer status",
}
_TOPIC = {
    member: TOPICS.index(topic) for topic, members in _MEMBERS.items() for member in members.split()
}
_SOURCE = {
    "gsm8k": "math", "gsm8k_steps": "math", "numersense": "math", "banking77": "banking",
    "snips": "errands", "hwu64": "errands", "clinc150": "errands",
}  # fmt: skip


def topic_of(row: Row) -> int:
    """The place of the row's topic in `TOPICS`, -1 where it has none."""
    name = row.subset
    if row.source == "own":
        label, _, name = name.split("/")
        name = "engineering_own" if (label, name) == ("hard", "engineering") else name
    elif row.source in _SOURCE:
        return TOPICS.index(_SOURCE[row.source])
    return _TOPIC.get(name.replace(" ", "_"), -1)


def fit_topics(
    vectors: npt.NDArray[np.float32], topics: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """(weights, bias) of a ridge regression on the topics, each topic weighing the same."""
    x = np.hstack([vectors, np.ones((len(vectors), 1), np.float32)]).astype(np.float64)
    sizes = np.bincount(topics, minlength=len(TOPICS))
    w = 1 / np.maximum(sizes[topics], 1)
    w *= len(w) / w.sum()
    y = np.eye(len(TOPICS))[topics]
    gram = (x * w[:, None]).T @ x + RIDGE * np.eye(x.shape[1])
    solved = np.linalg.solve(gram, (x * w[:, None]).T @ y)
    return solved[:-1].astype(np.float32), solved[-1].astype(np.float32)
