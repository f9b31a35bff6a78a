"""Naive reference implementations: each encoding's equation, computed for one pair of query and key in float64.

A reference is a function ``(encoding, head, i, j, q, k, v) -> (logit, value)`` for query i and key j, both counted from
the first real token; q, k, v are the vectors of that pair, q not yet scaled; the attention weight multiplies value. If
a query does not attend to single keys, a row reference gets all keys and values of the sentence. The reference of an
encoding that reads the layer's input gets that of the sentence, too, as ``x``.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Pair = tuple[float, np.ndarray]
Row = Callable[..., list[Pair]]
#: by encoding: (encoding, head, i, q, keys, values) -> (logit, value) of all that the query attends to
REFERENCES: dict[str, Row] = {}
#: encodings with row references, which do not attend to the keys themselves
PROJECTING: set[str] = set()


def reference_for(*names: str) -> Callable[[Callable[..., Pair]], Callable[..., Pair]]:
    def register(function: Callable[..., Pair]) -> Callable[..., Pair]:
        def row(encoding: Any, head: int, i: int, q: Any, keys: Any, values: Any, **more: Any) -> list[Pair]:
            return [function(encoding, head, i, j, q, keys[j], values[j], **more) for j in range(len(keys))]

        REFERENCES.update(dict.fromkeys(names, row))
        return function

    return register


def row_reference_for(name: str) -> Callable[[Row], Row]:
    def register(function: Row) -> Row:
        REFERENCES[name] = function
        PROJECTING.add(name)
        return function

    return register


def numpy(table: Any) -> np.ndarray:
    return table.detach().numpy()


def for_head(table: Any, head: int) -> Any:
    """The head's part of a table, which may be shared by all heads."""
    return numpy(table)[head if len(table) > 1 else 0]


def bias(encoding: Any, table: Any) -> Any:
    """The effective values of learned biases: --bias-gain times the parameter."""
    return encoding.bias_gain * table


def factor(encoding: Any, theta: float) -> float:
    """The effective value of a learned factor: its difference to 1 is multiplied by --bias-gain."""
    return 1 + encoding.bias_gain * (theta - 1)


def clip(distance: int, left: int, right: int) -> int:
    return max(-left, min(right, distance))


def row(table: Any, head: int, distance: int, limit: int) -> Any:
    """The table's entry of a clipped distance."""
    return for_head(table, head)[clip(distance, limit, limit) + limit]


def content(q: Any, k: Any) -> float:
    return q @ k / math.sqrt(len(q))


@reference_for("nopos", "sinusoidal", "learned")
def plain(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    return content(q, k), v


@reference_for("shaw")
def shaw(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    limit = encoding.clipping_distance
    if encoding.relative_keys is not None:
        k = k + row(encoding.relative_keys, head, j - i, limit)
    if encoding.relative_values is not None:
        v = v + row(encoding.relative_values, head, j - i, limit)
    return content(q, k), v


@reference_for("relative_key")
def relative_key(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    left, right = encoding.left_clip, encoding.right_clip
    return content(q, k + for_head(encoding.relative_keys, head)[clip(j - i, left, right) + left]), v


@reference_for("diet_rel")
def diet_rel(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    return content(q, k) + bias(encoding, row(encoding.relative_bias, head, j - i, encoding.clipping_distance)), v


@reference_for("diet_abs")
def diet_abs(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    p_q, p_k = for_head(encoding.query_positions, head), for_head(encoding.key_positions, head)
    return content(q, k) + p_q[i] @ p_k[j], v


@row_reference_for("linformer")
def linformer(encoding: Any, head: int, i: int, q: Any, keys: Any, values: Any) -> list[Pair]:
    e, f = numpy(encoding.projection.keys), numpy(encoding.projection.values)
    length = len(keys)
    return [
        (content(q, sum(e[c, j] * keys[j] for j in range(length))), sum(f[c, j] * values[j] for j in range(length)))
        for c in range(len(e))
    ]


@row_reference_for("diet_abs_lin")
def diet_abs_lin(encoding: Any, head: int, i: int, q: Any, keys: Any, values: Any) -> list[Pair]:
    p_q, p_k = for_head(encoding.query_positions, head), for_head(encoding.key_positions, head)
    plain_pairs = linformer(encoding, head, i, q, keys, values)
    return [(logit + p_q[i] @ p_k[c], value) for c, (logit, value) in enumerate(plain_pairs)]


def bucket(distance: int, num_buckets: int, max_distance: int, bidirectional: bool) -> int:
    """T5's bucket as in the authors' code, in double precision."""
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(0, -distance)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(max_distance / exact) * (num_buckets - exact))
    return first + min(far, num_buckets - 1)


@reference_for("t5")
def t5(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    table = bias(encoding, for_head(encoding.relative_bias, head))
    return content(q, k) + table[bucket(j - i, len(table), encoding.max_distance, encoding.bidirectional)], v


@reference_for("gated_t5")
def gated_t5(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    plain_logit, _ = t5(encoding, head, i, j, q, k, v)
    eight = numpy(encoding.gate_projection.weight) @ q + numpy(encoding.gate_projection.bias)
    a, b = (1 / (1 + math.exp(-sum(four))) for four in (eight[:4], eight[4:]))
    gate = a * (b * numpy(encoding.gate_scale)[head] - 1) + 2
    return content(q, k) + gate * (plain_logit - content(q, k)), v


def fire(encoding: Any, head: int, i: int, q: Any, keys: Any, values: Any) -> list[Pair]:
    """It needs the number of keys, which is the sentence's length."""
    c, longest = abs(encoding.rate.item()), abs(encoding.fire_threshold * encoding.threshold_scale.item())
    hidden, output = encoding.hidden, encoding.output
    in_encoder = hidden.weight.size(1) == 2
    longest = max(longest, len(keys) if in_encoder else i)
    pairs = []
    for j, (k, v) in enumerate(zip(keys, values, strict=True)):
        x = math.log(1 + c * abs(i - j)) / (math.log(1 + c * longest) + 1e-6)
        given = [x, float(j > i)] if in_encoder else [x]
        units = [max(0.0, b + w @ given) for w, b in zip(numpy(hidden.weight), numpy(hidden.bias), strict=True)]
        pairs.append((content(q, k) + for_head(output.bias, head) + for_head(output.weight, head) @ units, v))
    return pairs


REFERENCES["fire"] = fire


@reference_for("kerple_log")
def kerple_log(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    r1, r2 = (max(0.01, bias(encoding, for_head(scalar, head))) for scalar in (encoding.magnitude, encoding.rate))
    return content(q, k) - r1 * math.log(1 + r2 * abs(i - j)), v


@reference_for("kerple_power")
def kerple_power(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    r1, r2 = (max(0.01, bias(encoding, for_head(scalar, head))) for scalar in (encoding.magnitude, encoding.exponent))
    return content(q, k) - r1 * abs(i - j) ** min(r2, 2), v


@reference_for("alibi")
def alibi(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    heads = encoding.num_heads
    assert heads & (heads - 1) == 0, "for other numbers of heads the paper refers to the code: see the golden files"
    slope = 2 ** (-8 * (head + 1) / heads)
    if encoding.log_slopes is not None:
        slope = math.exp(bias(encoding, numpy(encoding.log_slopes)[head]))
    elif encoding.slope_logits is not None:
        table = numpy(encoding.slope_logits)
        theta = bias(encoding, table[1 if j > i and len(table) == 2 else 0, head])
        slope = 1 / (1 + math.exp(-theta))
    return content(q, k) - slope * abs(i - j), v


@reference_for("forget")
def forget(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any, x: Any) -> Pair:
    def log_gate(token: int, row_: int) -> float:
        logit = numpy(encoding.gates.weight)[row_] @ x[token] + numpy(encoding.gates.bias)[row_]
        return -math.log(1 + math.exp(-logit))

    if j <= i:
        decay = sum(log_gate(token, head) for token in range(j + 1, i + 1))
    elif encoding.bidirectional:
        decay = sum(log_gate(token, encoding.num_heads + head) for token in range(i + 1, j + 1))
    else:
        decay = -sum(log_gate(token, head) for token in range(i + 1, j + 1))
    return content(q, k) + decay, v


@reference_for("rotary")
def rotary(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    dim, base = encoding.rotary_dim, encoding.rotary_base
    if encoding.rotary_ntk_scale > 1:
        base *= encoding.rotary_ntk_scale ** (dim / (dim - 2))

    def rotated(x: Any, position: int, power: int) -> np.ndarray:
        result = x.copy()
        place = position / encoding.rotary_linear_scale
        for t in range(dim // 2):
            a, b = (2 * t, 2 * t + 1) if encoding.rotary_layout == "interleaved" else (t, t + dim // 2)
            angle = place * base ** (-2 * t / dim)
            length = ((2 * t / dim + 0.4) / 1.4) ** (power * place / 512) if encoding.decays else 1
            result[a] = length * (x[a] * math.cos(angle) - x[b] * math.sin(angle))
            result[b] = length * (x[b] * math.cos(angle) + x[a] * math.sin(angle))
        return result

    return content(rotated(q, i, 1), rotated(k, j, -1)), v


@reference_for("pope")
def pope(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    delta, total = numpy(encoding.phases)[head], 0.0
    for c in range(len(q)):
        phase = (j - i) * 10000 ** (-c / len(q)) + min(0.0, max(-2 * math.pi, delta[c]))
        total += math.log1p(math.exp(q[c])) * math.log1p(math.exp(k[c])) * math.cos(phase)
    return total / math.sqrt(len(q)), v


@reference_for("sinusoidal_qk", "learned_qk")
def query_key_vectors(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    def projected(projection: Any, t: int) -> np.ndarray:
        width = projection.weight.size(1)
        if encoding.name == "learned_qk":
            p = numpy(encoding.position_vectors)[t]
        else:
            angles = [t / 10000 ** (m / (width // 2 - 1)) for m in range(width // 2)]
            p = np.array([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])
        return (numpy(projection.weight) @ p).reshape(encoding.num_heads, -1)[head]

    query, key = encoding.content_projections
    return content(q + projected(query, i), k + projected(key, j)), v


def tupe_vector(encoding: Any, projection: Any, head: int, row_: int) -> np.ndarray:
    """The head's part of a position vector after LayerNorm and projection."""
    p = numpy(encoding.position_vectors)[row_]
    p = (p - p.mean()) / math.sqrt(p.var() + encoding.norm.eps)
    p = p * numpy(encoding.norm.weight) + numpy(encoding.norm.bias)
    projected = numpy(projection.weight) @ p + numpy(projection.bias)
    return projected.reshape(encoding.num_heads, -1)[head]


@reference_for("tupe_abs", "tupe_rel")
def tupe(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    untied = encoding.untie_first_token
    special = 0 if untied and i == 0 else 1 if untied and j == 0 else None
    rows = (i + untied, j + untied) if special is None else (special, special)
    u_q = tupe_vector(encoding, encoding.query_projection, head, rows[0])
    u_k = tupe_vector(encoding, encoding.key_projection, head, rows[1])
    logit = (q @ k + u_q @ u_k) / math.sqrt(2 * len(q))
    if encoding.name == "tupe_rel" and special is not None:
        logit += bias(encoding, numpy(encoding.first_token_bias)[head, special])
    elif encoding.name == "tupe_rel":
        table = bias(encoding, numpy(encoding.relative_bias)[head])
        logit += table[bucket(j - i, len(table), encoding.max_distance, encoding.bidirectional)]
    return logit, v


@reference_for("transformer_xl", "xlnet")
def transformer_xl(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    w_r = numpy(encoding.relative_projection)[head]
    width = w_r.shape[1]
    angles = [(i - j) / 10000 ** (2 * m / width) for m in range(width // 2)]
    r = np.array([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])
    u = numpy(encoding.content_bias)[head] if encoding.content_bias is not None else 0
    w = numpy(encoding.position_bias)[head] if encoding.position_bias is not None else 0
    return ((q + u) @ k + (q + w) @ (w_r @ r)) / math.sqrt(len(q)), v


def signed_bucket(distance: int, num_buckets: int, max_distance: int) -> int:
    """DeBERTa-v2's bucket as in the authors' code, in double precision."""
    exact, far = num_buckets // 2, min(abs(distance), max_distance - 1)
    if far > exact:
        far = exact + math.ceil(math.log(far / exact) / math.log((max_distance - 1) / exact) * (exact - 1))
    return far if distance > 0 else -far


@reference_for("deberta")
def deberta(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    limit, buckets = encoding.clipping_distance, encoding.position_buckets
    theirs = numpy(encoding.relative_vectors)[::-1]  # the authors' table is indexed by i - j

    def delta(a: int, b: int) -> int:
        if buckets is not None:
            return signed_bucket(a - b, buckets, encoding.max_distance) + buckets
        if a - b <= -limit:
            return 0
        return 2 * limit - 1 if a - b >= limit else a - b + limit

    def projected(projection: Any, index: int) -> np.ndarray:
        bias = 0 if projection.bias is None else numpy(projection.bias)
        return (numpy(projection.weight) @ theirs[index] + bias).reshape(encoding.num_heads, -1)[head]

    shares = encoding.share_key_projection
    query, key = encoding.content_projections if shares else (encoding.query_projection, encoding.key_projection)
    terms = [q @ k]
    if encoding.content_to_position:
        terms.append(q @ projected(key, delta(i, j)))
    if encoding.position_to_content:
        terms.append(k @ projected(query, delta(i, j) if encoding.position_index == "code" else delta(j, i)))
    return sum(terms) / math.sqrt(len(terms) * len(q)), v


@reference_for("huang1")
def huang1(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    return content(q, k) * factor(encoding, for_head(encoding.relative_factors, head)[abs(j - i)]), v


@reference_for("huang2")
def huang2(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    w = factor(encoding, row(encoding.relative_factors, head, j - i, encoding.clipping_distance))
    return content(q, k) * w, v


@reference_for("huang3")
def huang3(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    a = row(encoding.relative_vectors, head, j - i, encoding.clipping_distance)
    return sum(q[c] * k[c] * a[c] for c in range(len(q))) / math.sqrt(len(q)), v


@reference_for("huang4")
def huang4(encoding: Any, head: int, i: int, j: int, q: Any, k: Any, v: Any) -> Pair:
    a = row(encoding.relative_vectors, head, j - i, encoding.clipping_distance)
    return (q @ k + q @ a + k @ a) / math.sqrt(len(q)), v


def segment_term(encoding: Any, head: int, q: Any, query_segment: int, key_segment: int) -> float:
    """The logit's term of the segments of query and key: DIET's equation 2, or XLNet's term."""
    if encoding.segments is None:
        s, g = numpy(encoding.segment_query_bias)[head], numpy(encoding.segment_vectors)[:, head]
        return content(q + s, g[int(query_segment != key_segment)])
    last = encoding.segments.num_segments - 1
    table = bias(encoding.segments, numpy(encoding.segments.segment_bias)[head])
    return table[min(query_segment, last), min(key_segment, last)]


def urpe(encoding: Any, head: int, distance: int) -> float:
    """The factor on a weight after the softmax."""
    if encoding.urpe is None:
        return 1.0
    table = numpy(encoding.urpe.factors)[head]
    return factor(encoding.urpe, table[clip(distance, len(table) // 2, len(table) // 2) + len(table) // 2])


def naive_attention(
    encoding: Any,
    q: Any,
    k: Any,
    v: Any,
    padding: Any = None,
    causal: bool = False,
    segments: Any = None,
    query_positions: Any = None,
    query_segments: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes output (B, H, T, d) and weights (B, H, T, S) with loops; they are NaN for padded queries.

    Args:
        padding: (B, S), True = padding.
        causal: whether later keys are masked.
        segments: (B, S), the segment of each key.
        query_positions: (B, T), for cross-attention, where queries have their own ``query_segments`` too.
    """
    q, k, v = (x.detach().numpy() for x in (q, k, v))
    reference, has_keys = REFERENCES[encoding.name], encoding.name not in PROJECTING
    (batch, heads, queries, dim), keys = q.shape, k.shape[2]
    output = np.full((batch, heads, queries, dim), np.nan)
    weights = np.full((batch, heads, queries, keys if has_keys else encoding.projection_length), np.nan)
    for b in range(batch):
        real = [column for column in range(keys) if padding is None or not padding[b, column]]
        more = {"x": k[b, :, real].reshape(len(real), -1)} if encoding.name == "forget" else {}
        for t in range(queries):
            column = keys - queries + t
            if query_positions is None and column not in real:
                continue
            i = real.index(column) if query_positions is None else int(query_positions[b, t])
            for h in range(heads):
                pairs = reference(encoding, h, i, q[b, h, t], k[b, h, real], v[b, h, real], **more)
                if segments is not None:
                    own = int(segments[b, column] if query_segments is None else query_segments[b, t])
                    pairs = [
                        (logit + segment_term(encoding, h, q[b, h, t], own, int(segments[b, column])), value)
                        for column, (logit, value) in zip(real, pairs, strict=True)
                    ]
                if causal:
                    pairs = pairs[: i + 1]
                places = real if has_keys else range(len(pairs))
                exponentials = np.exp(np.array([logit for logit, _ in pairs]) - max(logit for logit, _ in pairs))
                output[b, h, t], weights[b, h, t] = 0, 0
                for j, (place, (_, value)) in enumerate(zip(places, pairs, strict=False)):
                    weights[b, h, t, place] = exponentials[j] / exponentials.sum() * urpe(encoding, h, j - i)
                    output[b, h, t] += weights[b, h, t, place] * value
    return output, weights
