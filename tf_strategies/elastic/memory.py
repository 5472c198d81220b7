"""Keeps the state of training after the last step of `fit` that this worker has finished, in memory."""

from __future__ import annotations

from typing import Callable, Dict, Optional

import numpy as np

from tf_strategies.callbacks.backup import Backup
from tf_strategies.callbacks.checkpoint_file import Checkpoint
from tf_strategies.callbacks.resuming import place_name
from tf_strategies.elastic.moment import Moment, farthest, moment_of, nowhere, put_back
from tf_strategies.elastic.moment_file import MomentFile
from tf_strategies.elastic.reading import Reader, VariableLists
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import build_optimizer, metric_variables, training_variables
from tf_strategies.keras.types import Model, Variable
from tf_strategies.types import JsonObject

__all__ = ["Memory", "MemoryBackup"]


class Memory:
    """Holds the last moment of one `fit`, over all its attempts.

    Attributes:
        moment: where a further attempt continues; None before the first attempt has begun.
        on_restored: is called with the place from which an attempt continues.
        on_ready: is called when this worker has the state with which the attempt begins, and all others have begun it.
        on_caught_up: is called when this worker has all variables that the others have.
        on_step: is called after each step; with local steps, after each moment that counts.
        continues: whether this is a further attempt.
        reader: reads variables, in all attempts.
    """

    def __init__(self) -> None:
        self.moment: Optional[Moment] = None
        self._newest: Optional[Moment] = None
        self.on_restored: Callable[[str], None] = lambda place: None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_caught_up: Callable[[], None] = lambda: None
        self.on_step: Callable[[], None] = lambda: None
        self.continues = False
        self.reader = Reader()

    def keep(self, moment: Moment) -> None:
        """Takes a moment. If it may be the end of an epoch of unknown length, it counts only when the next one has come.

        Keras has no logs for an epoch that continues without a batch.
        """
        facts = moment.position.facts
        if facts and facts["batches"] and facts["place"]["steps"] is None:
            self.moment, self._newest = self._newest or self.moment, moment
        else:
            self.moment, self._newest = moment, None

    @property
    def waits(self) -> bool:
        """Whether the last moment does not count yet."""
        return self._newest is not None

    def confirm(self) -> bool:
        """Makes the last moment count. Returns True if it has waited for that."""
        waited = self.waits
        self.moment, self._newest = self._newest or self.moment, None
        return waited

    def begin_again(self) -> None:
        """Forgets a moment that does not count yet."""
        self._newest = None

    def begin_nowhere(self) -> None:
        """Takes a moment before all others, so that this worker takes over the moment of another one."""
        self.moment, self.continues = nowhere(), True

    @property
    def place(self) -> str:
        """The place of the last moment, for messages."""
        if self.moment is None or self.moment.place[0] < 0:
            return "the beginning"
        epoch, batches = self.moment.place
        return place_name(epoch, batches)


class MemoryBackup(Backup):
    """Saves to a Memory. `save` and `restore` are collectives.

    Args:
        memory: the memory.
        model: the model that is trained.
        strategy: the strategy of the model; None for one replica.
        file: where the first step begins, if there is such a file.
        lists: lists the variables of the model.
    """

    def __init__(
        self,
        memory: Memory,
        model: Model,
        strategy: Optional[GroupStrategy],
        file: Optional[MomentFile],
        lists: VariableLists,
    ) -> None:
        self._lists = lists
        self._memory, self._model, self._strategy, self._file = memory, model, strategy, file
        self._lacks_metrics = False

    def save(self, moment: Checkpoint, metrics: Dict[str, Variable]) -> None:
        variables = {**self._lists.of_training(), **metrics}
        self._memory.keep(moment_of(moment, variables, self._strategy, self._memory.reader))

    @property
    def waits(self) -> bool:
        return self._memory.waits

    def confirm(self) -> bool:
        return self._memory.confirm()

    def restore(self) -> Optional[Checkpoint]:
        memory = self._memory
        memory.begin_again()
        if (memory.moment is None or memory.moment.is_nowhere) and self._model.built:
            build_optimizer(self._model)
        if memory.moment is None:
            self.save(Checkpoint({}, {}), {})
        memory.moment = self._farthest(memory.moment or nowhere())
        no_step = not memory.moment.position.facts
        saved = self._file.moment() if self._file is not None and no_step else None
        memory.moment = saved or memory.moment
        found = self._take_over(memory.moment) if saved or memory.continues else None
        memory.on_ready()
        if not self._lacks_metrics:
            memory.on_caught_up()
        return found

    def _take_over(self, moment: Moment) -> Optional[Checkpoint]:
        self._memory.on_restored(self._memory.place)
        variables = training_variables(self._model)
        put_back(moment, variables, is_first=self._strategy is None or self._strategy.rank == 0)
        if self._strategy is not None:
            self._strategy.make_equal(self._model)
        facts, arrays = moment.position
        if not facts:
            return None
        described: JsonObject = {}
        metrics: Dict[str, np.ndarray] = {}
        for name, total in moment.sums.items():
            if name not in variables:
                described[name] = {"label": name, "each": True, "sum": True, "replicas": 1}
                metrics[name] = total[np.newaxis]
        for name, parts in moment.values.items():
            if name not in variables:
                described[name] = {"label": name, "each": False, "sum": False, "replicas": 0}
                metrics[name] = parts[0].numpy()
        return Checkpoint({**facts, "variables": described}, {**arrays, **metrics})

    def end(self, *, delete: bool, saved: bool) -> None:
        del delete, saved

    def _farthest(self, mine: Moment) -> Moment:
        strategy = self._strategy
        if strategy is None:
            return mine
        found, have_metrics = farthest(
            mine,
            training_variables(self._model),
            strategy,
            remedy="run the same script, and build the model before fit, for example with a keras.Input",
            note=bool(metric_variables(self._model)),
        )
        self._lacks_metrics = any(have_metrics) and not have_metrics[strategy.rank]
        return found
