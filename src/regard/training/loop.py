"""The training loop: epochs over batches, early stopping, a checkpoint after every epoch."""

import copy
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from torch import Tensor, nn

from regard.errors import MissingExtraError, OptionError, StorageError
from regard.models import TextModel
from regard.models.language_model import perplexity_of
from regard.models.storage import read_tensors, write_tensors
from regard.progress import Bar
from regard.training.data import batches, by_length
from regard.training.settings import TrainingSettings
from regard.training.tasks import Task
from regard.training.tasks._task import IGNORED, Examples

CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class Epoch:
    """One line of the training curve; `seconds` of this epoch alone.

    Losses are means over all answers, one a text of a classifier, one a token of other models, and
    accuracy is the share of right ones.
    """

    epoch: int
    training_loss: float
    validation_loss: float
    validation_accuracy: float
    seconds: float


class Trainer:
    """Trains `model` in place; at the end it holds the weights of its best epoch, by its `task`.

    With a `folder`, each epoch leaves a checkpoint there, and a run of the same `signature` goes on
    from it, with the same result as one that was never stopped.
    """

    def __init__(
        self,
        model: TextModel,
        task: type[Task],
        settings: TrainingSettings,
        folder: Path | None = None,
        signature: str = "",
    ):
        self.model = model
        self.task = task
        self.settings = settings
        self.checkpoint = folder / CHECKPOINT if folder else None
        self.signature = signature
        self.history: list[Epoch] = []
        self.best = copy.deepcopy(model.state_dict())
        decayed = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim <= 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": settings.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=settings.learning_rate,
        )

    def fit(
        self, training: Examples, validation: Examples, board: Path | None = None
    ) -> list[Epoch]:
        """The training curve; `board` is a folder for TensorBoard."""
        if self.checkpoint is not None and self.checkpoint.exists():
            self._resume(self.checkpoint)
        settings = self.settings
        steps = [self._batches(training, epoch) for epoch in range(settings.epochs)]
        total = sum(map(len, steps))
        step = sum(len(part) for part in steps[: len(self.history)])
        writer = summary_writer(board) if board else None
        with Bar("training", total) as bar:
            bar.advance(step)
            for epoch in range(len(self.history), settings.epochs):
                if self._exhausted():
                    break
                began = time.perf_counter()
                loss = self._epoch(training, epoch, steps[epoch], step, total, bar)
                step += len(steps[epoch])
                validation_loss, accuracy = self.evaluate(validation)
                if not math.isfinite(loss + validation_loss):
                    raise OptionError(
                        f"the loss of epoch {epoch + 1} is no finite number; "
                        f"try a learning_rate below {settings.learning_rate:g}"
                    )
                if self._better(accuracy, validation_loss):
                    self.best = copy.deepcopy(self.model.state_dict())
                self.history.append(
                    Epoch(epoch + 1, loss, validation_loss, accuracy, time.perf_counter() - began)
                )
                if writer is not None:
                    for name, value in asdict(self.history[-1]).items():
                        writer.add_scalar(name, value, epoch + 1)
                if self.checkpoint is not None:
                    self._save(self.checkpoint)
        if writer is not None:
            writer.close()
        self.model.load_state_dict(self.best)
        self.model.eval()
        return self.history

    def _batches(self, training: Examples, epoch: int) -> list[list[int]]:
        order = np.random.default_rng((self.settings.seed, epoch))
        return batches(training.lengths, self.settings.batch_tokens, order)

    def _epoch(
        self,
        training: Examples,
        epoch: int,
        parts: Sequence[list[int]],
        step: int,
        total: int,
        bar: Bar,
    ) -> float:
        settings, model = self.settings, self.model
        # Seeded by epoch: a resumed run draws what an unbroken one would have drawn.
        torch.manual_seed(settings.seed * 1_000_003 + epoch)
        model.train()
        loss_of = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
        summed, count = 0.0, 0
        for part in parts:
            rise = min(1.0, (step + 1) / (settings.warmup + 1))
            for group in self.optimizer.param_groups:
                group["lr"] = settings.learning_rate * rise * (1 - step / total)
            logits, targets = training.ask(model, part, self._dropped)
            loss = loss_of(logits, targets)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            self.optimizer.step()
            answers = int((targets != IGNORED).sum())
            summed += loss.item() * answers
            count += answers
            step += 1
            bar.advance(1, f"epoch {epoch + 1} loss {loss.item():.3f}{self._last_measure()}")
        return summed / count

    def _dropped(self, ids: Tensor) -> Tensor:
        """`ids` with a share of the tokens, never special ones, replaced by the unknown token."""
        share, vocabulary = self.settings.token_dropout, self.model.vocabulary
        if not share:
            return ids
        drop = (torch.rand(ids.shape) < share).to(ids.device) & (ids >= len(vocabulary.specials))
        return ids.masked_fill(drop, vocabulary.unknown or 0)

    def evaluate(self, examples: Examples) -> tuple[float, float]:
        """Mean cross-entropy and accuracy, in eval mode."""
        loss, right, count = 0.0, 0, 0
        everything, lengths = range(len(examples.lengths)), examples.lengths
        with self.model.evaluating():
            for part in by_length(
                everything, lengths, examples.at_once * self.settings.batch_tokens
            ):
                logits, targets = examples.ask(self.model, part, lambda ids: ids)
                loss += nn.functional.cross_entropy(logits, targets, reduction="sum").item()
                right += int((logits.argmax(-1) == targets).sum())
                count += len(targets)
        return loss / count, right / count

    def key(self, epoch: Epoch) -> tuple[float, ...]:
        """What makes an epoch better than another."""
        return self.task.key(epoch.validation_accuracy, epoch.validation_loss)

    def _better(self, accuracy: float, loss: float) -> bool:
        return all(self.task.key(accuracy, loss) > self.key(epoch) for epoch in self.history)

    def _exhausted(self) -> bool:
        if not self.history:
            return False
        best = max(self.history, key=self.key)
        return len(self.history) - best.epoch >= self.settings.patience

    def _last_measure(self) -> str:
        if not self.history:
            return ""
        last = self.history[-1]
        if self.task.measure == "perplexity":
            return f", validation perplexity {perplexity_of(last.validation_loss):.1f}"
        return f", validation {last.validation_accuracy:.1%}"

    def _save(self, path: Path) -> None:
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {f"best.{name}": t for name, t in self.best.items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": t for name, t in state.items()}
        history = json.dumps([asdict(epoch) for epoch in self.history])
        write_tensors(path, tensors, {"signature": self.signature, "history": history})

    def _resume(self, path: Path) -> None:
        tensors = read_tensors(path)
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
        if metadata.get("signature") != self.signature:
            raise OptionError(
                f"{path.parent} holds an unfinished run with other settings or texts; "
                "name a new folder, or pass overwrite (--overwrite) to start anew"
            )
        self.history = [Epoch(**epoch) for epoch in json.loads(metadata["history"])]
        self.model.load_state_dict(_under("model.", tensors))
        self.best = _under("best.", tensors)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under("optimizer.", tensors).items():
            index, _, key = name.partition(".")
            state.setdefault(int(index), {})[key] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


def signature_of(checkpoint: Path) -> str | None:
    """The signature of the run that left `checkpoint`; None where no whole one is."""
    try:
        with safetensors.safe_open(checkpoint, "pt") as file:
            return (file.metadata() or {}).get("signature")
    except (OSError, safetensors.SafetensorError):
        return None


def summary_writer(folder: Path) -> Any:
    """TensorBoard's writer for `folder`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("tensorboard", "tensorboard") from None
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}") from None


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
