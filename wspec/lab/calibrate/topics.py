"""Every topic, in the order they run."""

from __future__ import annotations

from wspec.lab.calibrate import (
    arithmetic,
    blocks,
    clock,
    handshakes,
    memory,
    mixed,
    power,
    products,
    shared,
    shared_beside,
    softmax,
    tensor_cores,
    tma_load,
    tma_near,
    tma_pitch,
    tma_product,
    tma_store,
)
from wspec.lab.calibrate.topic import Topic

TOPICS: dict[str, Topic] = {
    part.TOPIC.name: part.TOPIC
    for part in (
        arithmetic,
        softmax,
        shared,
        tensor_cores,
        products,
        handshakes,
        blocks,
        memory,
        tma_load,
        tma_pitch,
        tma_product,
        tma_near,
        tma_store,
        clock,
        mixed,
        power,
        shared_beside,
    )
}
