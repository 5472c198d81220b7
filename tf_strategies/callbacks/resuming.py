"""A base class of callbacks that save the state of a `fit`, and let a later one continue from there."""

from __future__ import annotations

import abc
from typing import Dict, Iterable, List, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from tf_strategies.callbacks import callback_states, group_state
from tf_strategies.callbacks.backup import Backup, lasting
from tf_strategies.callbacks.checkpoint_file import Checkpoint
from tf_strategies.errors import OptionsError
from tf_strategies.keras.fit_types import Callback, Logs
from tf_strategies.keras.group_strategy import group_of
from tf_strategies.keras.hooks import Hooks
from tf_strategies.keras.model_state import learning_rates, metric_variables, replicas_of
from tf_strategies.keras.running_fit import RunningFit, running_callbacks, running_fit
from tf_strategies.keras.stopping import agree_to_stop
from tf_strategies.keras.types import Model
from tf_strategies.types import JsonObject

__all__ = ["Resuming", "place_name"]


def place_name(epoch: int, batches: int) -> str:
    """Returns a place of a `fit` in words: the epoch, from 0, and the number of its batches that are finished."""
    return f"epoch {epoch + 1}, after batch {batches}"


class Resuming(Hooks, abc.ABC):
    """Saves after some batches and after epochs. When `fit` begins, it restores what was saved before.

    Keras calls it after all other callbacks.

    Args:
        what: the name in messages.
        source: where the state comes from, in messages.
        save_freq: "epoch", or the number of batches between two saves.
        delete: whether the backup is deleted when `fit` ends without an error.
        each_epoch: whether it saves at the end of each epoch, too, whatever `save_freq` is.

    Attributes:
        epoch: the number of epochs that have ended.
        batches: the number of batches of the epoch that have ended.
        stopped: whether training stops before its last epoch.
        is_leaving: whether this worker and all others leave `fit` at this place.
    """

    def __init__(
        self, what: str, source: str, save_freq: Union[str, int], *, delete: bool, each_epoch: bool = False
    ) -> None:
        super().__init__()
        self.what, self._source, self._save_freq, self._delete = what, source, save_freq, delete
        self._each_epoch = each_epoch or save_freq == "epoch"
        self._fit: Optional[RunningFit] = None
        self.is_leaving = False

    @abc.abstractmethod
    def make_backup(self) -> Backup:
        """Returns where the state of the `fit` that begins is saved."""

    def acts_for(self, other: Resuming) -> bool:
        """Returns True if another one does nothing in a `fit` with this one, which saves and restores for it."""
        del other
        return False

    def set_model(self, model: Model) -> None:
        super().set_model(model)
        self._fit = None  # An earlier `fit` may have ended with an error.

    def on_train_begin(self, logs: Optional[Logs] = None) -> None:
        del logs
        if any(each.acts_for(self) for each in _resuming(running_callbacks(self.model))):
            return
        fit = self._fit = self._fit or self.find_fit()
        self._refuse_another(fit)
        if fit.callbacks[-1] is not self:
            # It is now the last callback in the list, so Keras calls it after all others.
            fit.callbacks.append(self)
            return
        while fit.callbacks.index(self) < len(fit.callbacks) - 1:
            fit.callbacks.remove(self)
        self.strategy = group_of(self.model)
        self._backup = self.make_backup()
        self._callback_states = callback_states.Snapshots(fit.callbacks)
        self.epoch = self.batches = self._since_saving = 0
        self._save_at_end = self.stopped = self._saved = self._trained = False
        self._leaving = ""  # the place, if `fit` is left as soon as the backup there counts
        self._metrics_to_come: Optional[Checkpoint] = None
        self._rates_to_keep: List[Tuple[tf.Variable, np.ndarray]] = []
        self.restore()

    def on_epoch_begin(self, epoch: int, logs: Optional[Logs] = None) -> None:
        del logs
        self.epoch = epoch
        self.running.forget()
        for rate, value in self._rates_to_keep:
            for part in replicas_of(rate):
                part.assign(value)
        self._rates_to_keep = []
        if self._metrics_to_come is None:
            return
        present = metric_variables(self.model)
        if set(present) == set(self._metrics_to_come.facts):
            group_state.assign(self.strategy, self._metrics_to_come, present)
            self._metrics_to_come = None

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        del logs
        if self._backup.confirm():
            self.confirmed()
        self._add_metrics_to_come()
        done = batch + 1 - self.batches
        self.batches = batch + 1
        self._saved, self._trained = False, True
        self.took(done)
        self._since_saving += done
        is_due = (
            not isinstance(self._save_freq, str)
            and self._since_saving >= self._save_freq
            and self.may_save_here()
        )
        self._save_at_end = is_due  # If this was the last batch, the end of the epoch is saved instead.
        if is_due:
            self._since_saving = 0
        agree_to_stop(self.model)
        if not (self.model.stop_training or self.running.is_last(self.batches)):
            self.end_part(saves=is_due)

    def on_epoch_end(self, epoch: int, logs: Optional[Logs] = None) -> None:
        del logs
        self.epoch, self.batches = epoch + 1, 0
        self._callback_states.epoch_ended()
        self.running.epoch_ended()
        agree_to_stop(self.model)
        self.stopped = bool(self.model.stop_training)
        self.end_part(saves=self._each_epoch or self._save_at_end or self.stopped)
        self._save_at_end = False

    def on_train_end(self, logs: Optional[Logs] = None) -> None:
        del logs
        if self.leaves_at_end() and (self._trained or self._restored):
            if not self._saved and self._trained:
                self.save()
            self.leave(place_name(self.epoch, self.batches))
        if self._fit is not None:
            self._fit.forget()
            self._fit = None
        self._backup.end(delete=self._delete, saved=self._saved)

    @property
    def running(self) -> RunningFit:
        """The `fit` that calls."""
        if self._fit is None:
            raise RuntimeError(f"{self.what} was called outside of Model.fit")
        return self._fit

    def find_fit(self) -> RunningFit:
        """Returns the `fit` that begins.

        Raises:
            OptionsError: it cannot be found, or cannot start in the middle of an epoch.
        """
        fit = running_fit(self.model)
        if fit is None:
            raise OptionsError(
                f"{self.what} works within Model.fit of Keras 3, tf_keras or Keras 2.15, and must be made in a line before the "
                "call of fit; in a loop of your own use tf.train.CheckpointManager"
            )
        if not fit.can_begin_elsewhere:
            raise OptionsError(
                f"{self.what} needs Keras 3.7 or newer, tf_keras, or Keras 2.15: `fit` of Keras 3.3 to 3.6 cannot start "
                'exactly in the middle of an epoch. Install a newer Keras: pip install "keras>=3.7"'
            )
        return fit

    def _refuse_another(self, fit: RunningFit) -> None:
        others = [each for each in _resuming(fit.callbacks) if each is not self]
        guests = [each for each in others if self.acts_for(each)]
        for pair in ([*(each for each in others if each not in guests), self], guests):
            if len(pair) > 1:
                raise OptionsError(
                    f"fit has two that say where it continues, {pair[0].what} and {pair[1].what}; leave one of them out, and "
                    "save other files with ModelCheckpoint"
                )

    def took(self, batches: int) -> None:
        """Notes that batches have ended."""
        self.running.took(batches)

    def confirmed(self) -> None:
        """Notes that the state counts that was saved last."""
        if self._leaving:
            self.leave(self._leaving)

    def listed_metrics(self) -> Dict[str, tf.Variable]:
        """Returns the variables of metrics, by name."""
        return metric_variables(self.model)

    def may_save_here(self) -> bool:
        """Returns True if the state may be saved after this batch. Otherwise it is saved after a later one."""
        return True

    def further_facts(self) -> JsonObject:
        """Returns what is saved beside the place and the states of callbacks."""
        return {}

    def leaves_here(self) -> bool:
        """Returns True if all workers leave `fit` here, as soon as the state is saved."""
        return False

    def leaves_at_end(self) -> bool:
        """Returns the same at the end of `fit`."""
        return self.leaves_here()

    def leave(self, place: str) -> None:
        """Leaves `fit`, whose state is saved at this place."""

    def end_part(self, *, saves: bool) -> None:
        """Ends a part of `fit` after which it can continue: a batch, an epoch, or all epochs."""
        self.is_leaving = self.leaves_here()
        if saves or self.is_leaving:
            self.save()
        if self.is_leaving:
            place = place_name(self.epoch, self.batches)
            if self._backup.waits:
                self._leaving = place
            else:
                self.leave(place)

    def save(self) -> None:
        """Saves the state of training."""
        metrics = self.listed_metrics() if self.batches else {}
        remembered, weights = self._callback_states.take()
        facts = {
            "epoch": self.epoch,
            "batches": self.batches,
            "stopped": self.stopped,
            "place": self.running.place(self.batches),
            "callbacks": remembered,
            **self.further_facts(),
        }
        self._backup.save(Checkpoint(facts, weights), metrics)
        self._saved = True

    def restore(self) -> None:
        """Puts back what was saved, if there is something."""
        found = self._backup.restore()
        self._restored = found is not None
        if found is None:
            return
        facts, arrays = found
        self.stopped = bool(facts["stopped"])
        callback_states.restore(self.running.callbacks, facts["callbacks"], arrays)
        self.epoch, self.batches = facts["epoch"], facts["batches"]
        kept = lasting(facts["variables"])
        sums = {name: fact for name, fact in facts["variables"].items() if name not in kept}
        if sums:
            self._metrics_to_come = Checkpoint(sums, arrays)
        if self.batches:  # The callbacks that begin this epoch once more may change its learning rate.
            rates = learning_rates(self.model)
            self._rates_to_keep = [(rate, replicas_of(rate)[0].numpy()) for rate in rates]
        if facts["stopped"]:
            self.running.end_now()
        else:
            self.running.go_to(self.epoch, self.batches, facts["place"])

    def _add_metrics_to_come(self) -> None:
        """Adds the saved sums to metrics that Keras 2 makes in its first step, and that have counted only this step."""
        if self._metrics_to_come is None:
            return
        waiting, self._metrics_to_come = self._metrics_to_come, None
        present = metric_variables(self.model)
        group_state.check(waiting, present, self._source)
        group_state.add(self.strategy, waiting, present)


def _resuming(callbacks: Iterable[Callback]) -> List[Resuming]:
    return [each for each in callbacks if isinstance(each, Resuming)]
