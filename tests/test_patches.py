"""Patched functions accept the same arguments as fairseq's own."""

import gc
import multiprocessing

import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import iterators
from fairseq.optim import FairseqOptimizer
from fairseq.tasks.translation import TranslationTask

from tests.models import build_model, make_sample, make_task, sentences


def test_any_items_can_be_grouped_and_dummies_come_first():
    assert list(iterators.GroupedIterator(list(range(10)), 4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    batches = [{"id": 1}, {}, {"id": 2}, None]
    assert list(iterators.GroupedIterator(batches, 4)) == [[{}, None, {"id": 1}, {"id": 2}]]


def test_a_dropped_iterator_ends_the_processes_of_its_data_loader():
    dataset = make_task().build_dataset_for_inference([torch.tensor([5, 2])] * 4, [2] * 4)
    options = {"num_workers": 1, "reuse_dataloader": True}  # as in a training
    before = set(multiprocessing.active_children())
    gc.disable()
    try:
        epochs = iterators.EpochBatchIterator(dataset, dataset.collater, [[0, 1], [2, 3]], **options)
        for _ in range(2):
            batches = epochs.next_epoch_itr(shuffle=False)
            assert [batch["id"].tolist() for batch in batches] == [[0, 1], [2, 3]]
        assert len(set(multiprocessing.active_children()) - before) == 1
        del epochs, batches
        assert set(multiprocessing.active_children()) <= before
    finally:
        gc.enable()


class ByPosition(TranslationTask):
    """Passes all arguments by position, as fairseq's speech tasks do."""

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)


def test_dummies_are_ignored_in_tasks_that_pass_arguments_by_position():
    task = make_task()
    task.__class__ = ByPosition
    model = build_model("transformer_shaw_tiny")
    rows, optimizer = sentences([5, 3]), FairseqOptimizer(None)
    optimizer._optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = (make_sample(rows, rows), model, CrossEntropyCriterion(task, sentence_avg=False), optimizer, 1)
    loss, size, logged = task.train_step(*step, False)
    assert (size, logged["ntokens"]) == (10, 10)
    assert loss > 0
    gradient = model.encoder.embed_tokens.weight.grad.clone()
    loss, size, logged = task.train_step(*step, True)
    assert (loss, size, logged["loss"], logged["ntokens"]) == (0, 0, 0, 0)
    assert torch.equal(model.encoder.embed_tokens.weight.grad, gradient)
