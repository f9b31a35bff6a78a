"""The papers' length penalty: a beam computed by hand, and a naive search with a real model (its use from fairseq's
command lines is tested in test_entry_points.py).
"""

import math
import pickle
from argparse import Namespace

import pytest
import torch
from fairseq.models import FairseqDecoder, FairseqEncoder, FairseqEncoderDecoderModel
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.translation import TranslationConfig

from fairseq_posenc.length_penalty import TASK, WuPenalty
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


# A fixed model: the probability of the next token after each prefix of w0 ("a") and w1 ("b"); "." ends the sentence.
NEXT = {
    "": {"a": 0.6, "b": 0.4},
    "a": {".": 0.5, "a": 0.3, "b": 0.2},
    "b": {"b": 0.9, ".": 0.06, "a": 0.04},
    "aa": {"b": 0.8, "a": 0.12, ".": 0.08},
    "bb": {"b": 0.6, ".": 0.25, "a": 0.15},
    "aab": {"a": 0.6, "b": 0.3, ".": 0.1},
    "bbb": {".": 0.9, "a": 0.06, "b": 0.04},
}


class ByHand(FairseqDecoder):
    def forward(self, prev_output_tokens, encoder_out=None, **_):
        rows = torch.full((*prev_output_tokens.shape, len(self.dictionary)), -math.inf)
        for row, tokens in zip(rows, prev_output_tokens.tolist(), strict=True):
            prefix = "".join({"w0": "a", "w1": "b"}[self.dictionary[token]] for token in tokens[1:])
            for token, probability in NEXT[prefix].items():
                row[-1, self.dictionary.index({"a": "w0", "b": "w1", ".": "</s>"}[token])] = math.log(probability)
        return rows, None

    def max_positions(self):
        return 20


class NoEncoder(FairseqEncoder):
    def forward(self, src_tokens, src_lengths, **_):
        return {"encoder_out": []}

    def reorder_encoder_out(self, encoder_out, new_order):
        return encoder_out


def by_hand():
    dictionary = make_task().target_dictionary
    return FairseqEncoderDecoderModel(NoEncoder(dictionary), ByHand(dictionary))


def test_the_penalties_rank_a_beam_computed_by_hand_differently():
    """A beam of 2, with the probabilities of each prefix after each step.

    1. a .6, b .4
    2. bb .36, "a." .30 finished, then aa .18 (ab .12 is pruned)
    3. bbb .216, aab .144 ("bb." .09 is third, and thus not finished)
    4. "bbb." .1944 finished, the second of two: the search ends.

    "a." has 2 tokens and log-probability ln .30 = -1.203973, "bbb." 4 and ln .1944 = -1.637838. With alpha = .6:

              len ** .6     score      ((5 + len) / 6) ** .6     score
    a.        1.515717    -0.794326    1.096903                 -1.097611
    bbb.      2.297397    -0.712910    1.275425                 -1.284151
    """
    dictionary, source = make_task().target_dictionary, torch.tensor([[4, 2]])
    a, b, end = dictionary.index("w0"), dictionary.index("w1"), dictionary.eos()
    [power], [wu] = (search(name, by_hand(), source) for name in (POWER, TASK))
    assert [tokens for tokens, _ in power] == [[b, b, b, end], [a, end]]
    assert [tokens for tokens, _ in wu] == [[a, end], [b, b, b, end]]
    assert [score for _, score in power] == pytest.approx([-0.712910, -0.794326], abs=1e-6)
    assert [score for _, score in wu] == pytest.approx([-1.097611, -1.284151], abs=1e-6)
    [unnormalized] = search(TASK, by_hand(), source, unnormalized=True)
    assert [score for _, score in unnormalized] == pytest.approx([-1.203973, -1.637838], abs=1e-6)


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


@pytest.mark.parametrize("beam", [1, 4])
def test_it_equals_a_naive_search_over_a_real_model(beam):
    task, model = make_task(), build_model("transformer_shaw_tiny", "--clipping-distance", "3", seed=4)
    with torch.no_grad():  # clear preferences, and sentences of medium length
        model.decoder.output_projection.weight.mul_(3)
    rows = sentences(task, [3, 9, 5, 1, 7, 4])
    penalties = {POWER: lambda length: length**0.6, TASK: lambda length: ((5 + length) / 6) ** 0.6}
    best = {}
    for name, penalty in penalties.items():
        found = search(name, model, batch(task, rows, left_pad=True), beam=beam)
        for row, hypotheses_ in zip(rows, found, strict=True):
            expected = naive_search(model, task, row, beam, penalty, 12)
            assert [tokens for tokens, _ in hypotheses_] == [tokens for tokens, _ in expected]
            assert [score for _, score in hypotheses_] == pytest.approx([score for _, score in expected], abs=1e-5)
        best[name] = [row[0][0] for row in found]
    lengths = {len(tokens) for tokens in best[POWER]}
    assert len(lengths) > 1, "sentences that all end alike show nothing"
    assert beam == 1 or best[POWER] != best[TASK]


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": True, "sampling_topk": 5},
        {"diverse_beam_groups": 2},
        {"diversity_rate": 0.5},
        {"match_source_len": True},
        {"no_repeat_ngram_size": 2, "temperature": 1.5},
        {"min_len": 6, "prefix": 2},
        {"print_alignment": "hard"},
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


def test_the_penalty_supports_no_other_operation():
    penalty = pickle.loads(pickle.dumps(WuPenalty(0.6)))
    assert 7**penalty == pytest.approx(2**0.6)
    assert 1.0**penalty == 1.0
    for other in (lambda: penalty**2, lambda: penalty * 2, lambda: -penalty):
        with pytest.raises(TypeError):
            other()


def test_scoring_a_reference_applies_no_penalty():
    model = build_model("transformer_shaw_tiny")
    kinds = [type(make_generator(name, model, score_reference=True)) for name in (POWER, TASK)]
    assert kinds[0] is kinds[1]
