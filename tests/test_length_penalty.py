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
from tests.models import batch, build_model, make_task, sentences

POWER = "translation"


def make_generator(name, model, **options):
    task = TASK_REGISTRY[name](TranslationConfig(), make_task().source_dictionary, make_task().target_dictionary)
    defaults = {"beam": 2, "lenpen": 0.6, "max_len_a": 0, "max_len_b": 12}
    return task.build_generator([model], Namespace(**{**defaults, **options}))


def search(name, model, source, **options):
    """The results of fairseq's search for each row of `source`: (tokens, score), best first."""
    generator = make_generator(name, model, **options)
    lengths = source.ne(make_task().source_dictionary.pad()).sum(1)
    found = generator.generate([model], {"net_input": {"src_tokens": source, "src_lengths": lengths}})
    return [[(one["tokens"].tolist(), float(one["score"])) for one in row] for row in found]


def naive_search(model, task, sentence, beam, penalty, max_len):
    """Beam search like fairseq's, on lists, with a full pass for every prefix.

    The result is the first `beam` hypotheses that finish among the best `beam` candidates of a step.
    """
    dictionary = task.target_dictionary
    eos, pad = dictionary.eos(), dictionary.pad()
    finished, living = [], [((), 0.0)]
    for step in range(max_len + 1):
        candidates = []
        for prefix, total in living:
            with torch.no_grad():
                logits, _ = model(sentence[None], torch.tensor([len(sentence)]), torch.tensor([[eos, *prefix]]))
            for token, value in enumerate(logits[0, -1].double().log_softmax(-1).tolist()):
                allowed = token == eos if step == max_len else token != pad and (token != eos or step >= 1)
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
    task, model = make_task(), build_model("transformer_shaw_tiny", "--clipping-distance", "3", seed=4)
    with torch.no_grad():  # clear preferences, and sentences of medium length
        model.decoder.output_projection.weight.mul_(3)
    rows = sentences(task, [3, 9, 5, 1, 7, 4])
    penalties = {POWER: lambda length: length**0.6, TASK: lambda length: ((5 + length) / 6) ** 0.6}
    best = {}
    for name, penalty in penalties.items():
        found = search(name, model, batch(task, rows, left_pad=True), beam=4)
        for row, hypotheses_ in zip(rows, found, strict=True):
            expected = naive_search(model, task, row, 4, penalty, 12)
            assert [tokens for tokens, _ in hypotheses_] == [tokens for tokens, _ in expected]
            assert [score for _, score in hypotheses_] == pytest.approx([score for _, score in expected], abs=1e-5)
        best[name] = [row[0][0] for row in found]
    lengths = {len(tokens) for tokens in best[POWER]}
    assert len(lengths) > 1, "sentences that all end alike show nothing"
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
    task, model = make_task(), build_model("transformer_shaw_tiny", seed=4)
    sources = sentences(task, [3, 9, 5])
    source = batch(task, sources, left_pad=True)
    generator = make_generator(TASK, model, beam=4, **options)
    lengths = source.ne(task.source_dictionary.pad()).sum(1)
    target = batch(task, sources, left_pad=False)
    inputs = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": target}
    prefix = {"prefix_tokens": target[:, : options["prefix"]]} if "prefix" in options else {}
    torch.manual_seed(1)
    rows = generator.generate([model], {"net_input": inputs, "target": target}, **prefix)
    # With --match-source-len the score of a hypothesis that is too long is minus infinity.
    found = [one for row in rows for one in row if one["score"] > -math.inf]
    assert len(found) >= 3
    for one in found:
        expected = one["positional_scores"].sum() / ((5 + len(one["tokens"])) / 6) ** 0.6
        assert float(one["score"]) == pytest.approx(float(expected), abs=1e-4)


def test_scoring_a_reference_applies_no_penalty():
    model = build_model("transformer_shaw_tiny")
    kinds = [type(make_generator(name, model, score_reference=True)) for name in (POWER, TASK)]
    assert kinds[0] is kinds[1]
