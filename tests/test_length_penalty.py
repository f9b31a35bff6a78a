"""The papers' length penalty: a beam computed by hand, and a naive search with a real model (its use from fairseq's
command lines is tested in test_entry_points.py).
"""

import math
from argparse import Namespace

import pytest
import torch
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.translation import TranslationConfig

from fairseq_posenc.length_penalty import TASK
from tests.models import PAD, build_model, make_sample, make_task, sentences, token_lists

POWER = "translation"
DICTIONARY = make_task().target_dictionary


def make_generator(name, model, **options):
    task = TASK_REGISTRY[name](TranslationConfig(), DICTIONARY, DICTIONARY)
    defaults = {"beam": 4, "lenpen": 0.6, "max_len_a": 0, "max_len_b": 12}
    return task.build_generator([model], Namespace(**{**defaults, **options}))


def naive_search(model, sentence, beam, penalty, max_len):
    """Beam search like fairseq's, on lists, with a full pass for every prefix.

    The result is the first `beam` hypotheses that finish among the best `beam` candidates of a step.
    """
    eos = DICTIONARY.eos()
    finished, living = [], [((), 0.0)]
    for step in range(max_len + 1):
        candidates = []
        for prefix, total in living:
            with torch.no_grad():
                logits, _ = model(sentence[None], torch.tensor([len(sentence)]), torch.tensor([[eos, *prefix]]))
            for token, value in enumerate(logits[0, -1].double().log_softmax(-1).tolist()):
                allowed = token == eos if step == max_len else token != PAD and (token != eos or step >= 1)
                if allowed:
                    candidates.append(((*prefix, token), total + value))
        candidates = sorted(candidates, key=lambda candidate: -candidate[1])[: 2 * beam]
        ended = [candidate for candidate in candidates[:beam] if candidate[0][-1] == eos]
        finished += [(list(tokens), total / penalty(len(tokens))) for tokens, total in ended]
        if len(finished) >= beam:
            break
        living = [candidate for candidate in candidates if candidate[0][-1] != eos][:beam]
    return sorted(finished[:beam], key=lambda hypothesis: -hypothesis[1])


def test_it_equals_a_naive_search_over_a_real_model():
    model, rows = (
        build_model("transformer_shaw_tiny", "--clipping-distance", "3", seed=4),
        sentences([3, 9, 5, 1, 7, 4]),
    )
    with torch.no_grad():  # clear preferences, and sentences of medium length
        model.decoder.output_projection.weight.mul_(3)
    penalties = {POWER: lambda length: length**0.6, TASK: lambda length: ((5 + length) / 6) ** 0.6}
    best = {}
    for name, penalty in penalties.items():
        results = make_generator(name, model).generate([model], make_sample(rows, rows))
        for row, hypotheses in zip(rows, results, strict=True):
            tokens, scores = zip(*naive_search(model, row, 4, penalty, 12), strict=True)
            assert token_lists(hypotheses) == [*tokens]
            assert [float(hypothesis["score"]) for hypothesis in hypotheses] == pytest.approx(scores, abs=1e-5)
        best[name] = [token_lists(row)[0] for row in results]
    assert len(set(map(len, best[POWER]))) > 1, "sentences that all end alike show nothing"
    assert best[POWER] != best[TASK]


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": True, "sampling_topk": 5},
        {"diverse_beam_groups": 2},
        {"match_source_len": True},
        {"no_repeat_ngram_size": 2, "min_len": 6, "prefix": 2},
    ],
    ids=lambda options: "-".join(options),
)
def test_every_kind_of_search_applies_it(options):
    """A score is the sum of the tokens' scores divided by the penalty in every kind of search."""
    model, rows = build_model("transformer_shaw_tiny", seed=4), sentences([3, 9, 5])
    sample = make_sample(rows, rows)
    prefix = {"prefix_tokens": sample["target"][:, : options["prefix"]]} if "prefix" in options else {}
    torch.manual_seed(1)
    results = make_generator(TASK, model, **options).generate([model], sample, **prefix)
    # With --match-source-len the score of a hypothesis that is too long is minus infinity.
    finite = [hypothesis for row in results for hypothesis in row if hypothesis["score"] > -math.inf]
    assert len(finite) >= 3
    for hypothesis in finite:
        expected = hypothesis["positional_scores"].sum() / ((5 + len(hypothesis["tokens"])) / 6) ** 0.6
        torch.testing.assert_close(hypothesis["score"], expected, rtol=0, atol=1e-4)


def test_scoring_a_reference_applies_no_penalty():
    model = build_model("transformer_shaw_tiny")
    kinds = [type(make_generator(name, model, score_reference=True)) for name in (POWER, TASK)]
    assert kinds[0] is kinds[1]
