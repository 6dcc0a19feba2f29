"""Stage 1, reading: (passage, question) -> answer, before any retrieval is learnt."""

import dataclasses
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BartForConditionalGeneration

from service.offline.training.batches import IGNORED, ReadingBatch, collate, encode_examples
from service.offline.training.dev_scores import reading_scores
from service.offline.training.dropout import MaskedDropout, silence_dropout
from service.offline.training.examples import Question, ReadingExample
from service.offline.training.loop import (
    ALONE,
    MasterAdamW,
    ParameterGroup,
    Replicas,
    batches_by_length,
    cross_entropy_of_targets,
    frozen_parameters,
    learning_rate,
    load_state,
    save_state,
)


@dataclass(frozen=True, slots=True)
class ReadingConfig:
    """How stage 1 is trained; every number that the result depends on, but for the questions themselves."""

    steps: int = 2400
    tokens_per_step: int = 5120
    warm_up: int = 100
    encoder_rate: float = 2e-4
    decoder_rate: float = 6e-4
    weight_decay: float = 0.01
    dropout: float = 0.1
    guidance: float = 0.3
    guided_heads: int = 6
    max_input_length: int = 300
    max_target_length: int = 24
    examples_per_pool: int = 1500
    evaluate_every: int = 600
    save_every: int = 150
    seed: int = 0


def reading_loss(
    generator: BartForConditionalGeneration, batch: ReadingBatch, *, guidance: float, guided_heads: int
) -> tuple[Tensor, Tensor]:
    """Mean -log p of a target token, plus `guidance` times the guided attention loss; and the first alone, detached.

    Guided attention: the first `guided_heads` heads of the last cross-attention should look at the answer's own
    tokens, -log of the attention that falls there.
    """
    states = generator.model.encoder(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask
    ).last_hidden_state  # (B, S, d)
    decoded = generator.model.decoder(
        input_ids=batch.decoder_input_ids,
        encoder_hidden_states=states,
        encoder_attention_mask=batch.attention_mask,
        use_cache=False,
        output_attentions=guidance > 0,
    )
    wanted = batch.targets != IGNORED  # (B, T)
    hidden = decoded.last_hidden_state[wanted]  # (N, d)
    logits = torch.nn.functional.linear(hidden, generator.lm_head.weight) + generator.final_logits_bias  # (N, V)
    nll = cross_entropy_of_targets(logits, batch.targets[wanted]).mean()  # ()
    loss = nll
    guided = batch.evidence.any(dim=-1)  # (B, T)
    if guidance > 0 and bool(guided.any()):
        attention = decoded.cross_attentions[-1][:, :guided_heads].float()  # (B, H, T, S)
        seen = (attention * batch.evidence[:, None]).sum(dim=-1)  # (B, H, T)
        misses = -torch.log(seen + 1e-6).mean(dim=1)[guided]  # (M,)
        loss = loss + guidance * misses.mean()
    return loss, nll.detach()


def trainable_groups(generator: BartForConditionalGeneration, config: ReadingConfig) -> list[ParameterGroup]:
    """All but the word embeddings: the encoder at its rate; the decoder and the logits' bias at the other."""
    generator.requires_grad_(True)
    generator.model.shared.requires_grad_(False)
    generator.lm_head.requires_grad_(False)
    train_logits_bias(generator)
    encoder = tuple(p for p in generator.model.encoder.parameters() if p.requires_grad)
    decoder = tuple(p for p in generator.model.decoder.parameters() if p.requires_grad)
    return [
        ParameterGroup(encoder, config.encoder_rate),
        ParameterGroup((*decoder, generator.get_parameter("final_logits_bias")), config.decoder_rate),
    ]


def train_logits_bias(generator: BartForConditionalGeneration) -> None:
    """Turn BART's `final_logits_bias`, a buffer, into a parameter: it makes up for frozen word embeddings."""
    if not isinstance(generator.final_logits_bias, torch.nn.Parameter):
        bias = generator.final_logits_bias
        del generator.final_logits_bias
        generator.final_logits_bias = torch.nn.Parameter(bias)


MakeExamples = Callable[[int, int], Sequence[ReadingExample]]


def reading_batches(
    make_examples: MakeExamples, tokenizer: Any, config: ReadingConfig, *, start: int, first_pool: int = 0
) -> Iterator[tuple[int, list[ReadingBatch]]]:
    """Endless pools of batches: (pool number, its batches). A pool depends on its number and the seed alone."""
    pool = first_pool
    while True:
        examples = make_examples(pool, config.examples_per_pool)
        encoded = encode_examples(
            examples, tokenizer, max_input_length=config.max_input_length, max_target_length=config.max_target_length
        )
        batches = batches_by_length(
            encoded,
            [len(example.input_ids) for example in encoded],
            tokens=config.tokens_per_step,
            random_state=random.Random(f"{config.seed} batches {pool}"),
        )
        yield pool, [collate(batch, pad=tokenizer.pad_token_id, start=start) for batch in batches]
        pool += 1


def train_reading(
    generator: BartForConditionalGeneration,
    tokenizer: Any,
    make_examples: MakeExamples,
    config: ReadingConfig,
    *,
    state_file: Path,
    log: Callable[[dict[str, Any]], None],
    dev: Sequence[Question] = (),
    replicas: Replicas = ALONE,
) -> None:
    """Train `generator` in place, in bf16 with float32 masters; it is left in float32 and in evaluation mode.

    Of several replicas each takes every n-th batch of a pool, with `tokens_per_step` shared between them; the first
    one saves, evaluates and logs. Begins again from `state_file` where there is one, at the step that it holds, in
    the pool that it was in.
    """
    generator.set_attn_implementation("eager")
    optimizer = MasterAdamW(
        trainable_groups(generator, config),
        frozen=frozen_parameters(generator),
        replicas=replicas,
        weight_decay=config.weight_decay,
    )
    generator.to(torch.bfloat16)
    silence_dropout(generator)
    state_file.parent.mkdir(parents=True, exist_ok=True)
    state = load_state(state_file) or {"step": 0, "pool": 0, "batch": 0}
    if "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    step, skip = int(state["step"]), int(state["batch"])
    seed = config.seed + step + replicas.rank * config.steps
    handles = MaskedDropout(config.dropout, seed=seed, dtype=torch.bfloat16).attach(generator)
    generator.train()
    began, first = time.monotonic(), step
    recent: list[float] = []
    start = generator.config.decoder_start_token_id
    shared = dataclasses.replace(config, tokens_per_step=config.tokens_per_step // replicas.count)
    for pool, batches in reading_batches(make_examples, tokenizer, shared, start=start, first_pool=int(state["pool"])):
        together = len(batches) // replicas.count * replicas.count
        for number, batch in enumerate(batches[replicas.rank : together : replicas.count]):
            if number < skip:
                continue
            guidance = config.guidance * max(0.0, 1 - step / (0.7 * config.steps))
            loss, nll = reading_loss(generator, batch, guidance=guidance, guided_heads=config.guided_heads)
            torch.autograd.backward(loss)
            rate = learning_rate(step, steps=config.steps, warm_up=config.warm_up)
            norm = optimizer.step(rate)
            recent.append(float(nll))
            step += 1
            first_one = replicas.rank == 0
            if step % 20 == 0 and first_one:
                seconds = (time.monotonic() - began) / (step - first)
                log({"step": step, "nll": sum(recent) / len(recent), "norm": norm, "rate": rate, "s/step": seconds})
                recent.clear()
            if first_one and (step % config.save_every == 0 or step == config.steps):
                place = {"step": step, "pool": pool, "batch": number + 1}
                save_state(state_file, {**place, "optimizer": optimizer.state_dict()})
            if dev and first_one and (step % config.evaluate_every == 0 or step == config.steps):
                matched, overlap = reading_scores(generator, tokenizer, dev)
                log({"step": step, "dev_exact_match": matched, "dev_f1": overlap, "questions": len(dev)})
                generator.train()
            if step >= config.steps:
                for handle in handles:
                    handle.remove()
                optimizer.copy_masters_to(generator)
                generator.eval()
                return
        skip = 0
