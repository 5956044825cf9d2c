"""One line broken at a time: keys, transfers, the embedded store, and the checks themselves."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_KEYS = "pools/keys.py"
_TRANSFER = "engine/transfer.py"
_BATCHING = "engine/batching.py"
_CONTROLLER = "engine/controller.py"
_POOL = "fixtures/host_pool.py"
_FILL = "fixtures/fill.py"
_RANK = "workflows/rank.py"

KEY_MUTANTS = (
    Mutant("a key without its namespace", _KEYS, "            self.namespace,\n", '            "",\n'),
    Mutant("a key without the layout", _KEYS, "            str(pool.layout),\n", '            "",\n'),
    Mutant(
        "a key without the attention",
        _KEYS,
        "            str(pool.attention),\n",
        '            "",\n',
        equivalent="a pool's name and its model, which the namespace stands for, say what attention it has",
    ),
    Mutant("a key without the pool", _KEYS, "            str(pool.name),\n", '            "",\n'),
    Mutant("a key without the dtype", _KEYS, "            pool.dtype,\n", '            "",\n'),
    Mutant(
        "a key without the size of a page",
        _KEYS,
        'f"p{pool.page_tokens}u{pool.unit_pages}"',
        '""',
        equivalent="pages of another size have other hashes, and units of more pages other rows",
    ),
    Mutant(
        "a key without the geometry",
        _KEYS,
        'f"l{component.num_layers}r{component.rows}b{component.row_bytes}h{component.heads}"',
        '""',
        equivalent="the model, which the namespace stands for, the dtype and the shard decide the geometry",
    ),
    Mutant("a key without the shard", _KEYS, "            *pool.shard_of(component),\n", ""),
    Mutant(
        "a key without the component",
        _KEYS,
        '            component.name,\n        )\n        return "/"',
        '            "",\n        )\n        return "/"',
    ),
    Mutant("a page hash without those before it", _KEYS, "sha256(digest + page)", "sha256(page)"),
    Mutant(
        "a page hash of its page and the seed alone",
        _KEYS,
        "digest = sha256(digest + page).digest()\n        hashes.append(digest.hex())\n",
        "hashes.append(sha256(digest + page).hexdigest())\n",
    ),
    Mutant(
        "a chain without its seed",
        _KEYS,
        'bytes.fromhex(parent) if parent is not None else b""',
        'b""',
    ),
    Mutant(
        "adapter and salt run together",
        _KEYS,
        'b"\\x01" + len(encoded).to_bytes(8, "little") + encoded',
        "encoded",
    ),
    Mutant(
        "components component by component",
        _KEYS,
        "keys[index :: len(templates)]",
        "keys[index * len(hashes) : (index + 1) * len(hashes)]",
    ),
    Mutant(
        "a replicated pool per rank",
        "pools/descriptor.py",
        'if self.sharding is Sharding.SHARDED else "tp-"',
        'if tp_count else "tp-"',
    ),
    Mutant(
        "the pages of a request in reverse",
        "engine/prefix.py",
        "return keys[first * step : (last + 1) * step]",
        "return keys[first * step : (last + 1) * step][::-1]",
    ),
    Mutant(
        "a unit under the page after it",
        "engine/prefix.py",
        "hashes[index] for index in (ends - 1 - prefix.first_page).tolist()",
        "hashes[min(index + 1, len(hashes) - 1)] for index in (ends - 1 - prefix.first_page).tolist()",
    ),
)

TRANSFER_MUTANTS = (
    Mutant(
        "any component instead of all",
        _TRANSFER,
        "np.logical_and.reduce(flags",
        "np.logical_or.reduce(flags",
    ),
    Mutant(
        "a batch one page short",
        _TRANSFER,
        "_batches(requests, self._batch_pages)",
        "_batches(requests, max(1, self._batch_pages - 1))",
    ),
    Mutant(
        "a batch one page long",
        _TRANSFER,
        "_batches(requests, self._batch_pages)",
        "_batches(requests, self._batch_pages + 1)",
    ),
    Mutant(
        "one call for all pages",
        _BATCHING,
        "_distinct(ends)[::batch_pages]",
        "_distinct(ends)[:1:batch_pages]",
    ),
    Mutant(
        "the last page of a batch left out",
        _BATCHING,
        "yield tuple((cut[batch], cut[batch + 1]) for cut in cuts)",
        "yield tuple((cut[batch], max(cut[batch], cut[batch + 1] - 1)) for cut in cuts)",
    ),
    Mutant(
        "a save goes on after a failed batch",
        _TRANSFER,
        "return results, not unstored(results)",
        "return results, True",
    ),
    Mutant(
        "a failed put is not tried again",
        _TRANSFER,
        "for _ in range(self._put_retries):",
        "for _ in range(0):",
    ),
    Mutant(
        "answers of the wrong number",
        _TRANSFER,
        "if len(answered) != len(keys):",
        "if len(answered) > 1 << 30:",
    ),
    Mutant(
        "a read goes on after a failed batch",
        _TRANSFER,
        "return results, any(result.status is not Status.ERROR for result in results)",
        "return results, True",
    ),
    Mutant(
        "a read ends at its first miss",
        _TRANSFER,
        "return results, any(result.status is not Status.ERROR for result in results)",
        "return results, all(result is OK for result in results)",
    ),
    Mutant(
        "every planned unit arrived",
        _CONTROLLER,
        "units=item.units[whole],",
        "units=item.units,",
    ),
    Mutant("one unit that arrived stands for all", _CONTROLLER, "if whole.all():", "if whole.any():"),
    Mutant(
        "misses count as failures",
        _CONTROLLER,
        "not_failed = self._volume(item.pool, transfer, OK, MISS)",
        "not_failed = read",
    ),
    Mutant(
        "pages stored up to the last failure",
        _CONTROLLER,
        "stored = min(stored, unit * item.pool.unit_pages)",
        "stored = unit * item.pool.unit_pages",
    ),
    Mutant(
        "slots counted, not looked up",
        _CONTROLLER,
        "slots = prefix.slots[pool.name][units]",
        "slots = np.arange(len(units))",
    ),
    Mutant(
        "existing objects count as written",
        _CONTROLLER,
        "written=self._volumes(transfer, OK),",
        "written=self._volumes(transfer, OK, EXISTS),",
    ),
    Mutant(
        "a lookup that believes in everything",
        "engine/lookup.py",
        "present[asked] = flags",
        "present[asked] |= flags",
    ),
    Mutant(
        "the state's policy ignored by a save",
        _CONTROLLER,
        "policy.saved_units(pool, num_units(pool, prefix.num_pages))",
        "(num_units(pool, prefix.num_pages) > 0)",
    ),
    Mutant(
        "a scored index that did not arrive",
        _CONTROLLER,
        "self._arrival(item, transfer).units.size == item.units.size",
        "self._arrival(item, transfer).units.size <= item.units.size",
    ),
    Mutant(
        "a put that overwrites",
        "store/local.py",
        "        if existing is not None:\n",
        "        if existing is not None and existing.num_bytes == batch.totals[index]:\n"
        "            self._objects.drop(key)\n"
        "            existing = None\n"
        "        if existing is not None:\n",
    ),
)

CHECK_MUTANTS = (
    Mutant("poison that is zeros", _POOL, "buffer.fill(POISON)", "buffer.fill(0)"),
    Mutant("no poison at all", _POOL, "            buffer.fill(POISON)\n", "            del buffer\n"),
    Mutant("poison that is not looked for", _FILL, "if not all(map(_is_poison", "if not any(map(_is_poison"),
    Mutant(
        "one byte of poison is enough",
        _FILL,
        "np.bitwise_and.reduce(page, axis=None) == poison and ",
        "",
    ),
    Mutant(
        "guard zones that are not looked at",
        _POOL,
        "bool((framed[:GUARD_BYTES] == _GUARD).all() and (framed[-GUARD_BYTES:] == _GUARD).all())",
        "bool(len(framed))",
    ),
    Mutant(
        "half of the guard zones looked at",
        _POOL,
        "(framed[:GUARD_BYTES] == _GUARD).all() and (framed[-GUARD_BYTES:] == _GUARD).all()",
        "(framed[:GUARD_BYTES] == _GUARD).all()",
    ),
    Mutant(
        "bytes that are not compared",
        _FILL,
        "if unit not in wrong and not component.matches(view[slot], identities):",
        "if unit in wrong and not component.matches(view[slot], identities):",
    ),
    Mutant(
        "every page of a layer has the same bytes",
        _FILL,
        "(self._key + int(unit) * _GOLDEN_GAMMA) % 2**64",
        "(self._key + 0 * int(unit)) % 2**64",
    ),
    Mutant(
        "every request has the same bytes",
        _FILL,
        '"/".join((str(seed), pool.name,',
        '"/".join((pool.name,',
    ),
    Mutant(
        "checks that always pass",
        _RANK,
        "return Check(name, expected, actual, expected == actual)",
        "return Check(name, expected, actual, True)",
    ),
    Mutant(
        "the store's count taken from the ledger",
        _RANK,
        "self._check_restore(report, setting.store.stats.get_bytes - bytes_before)",
        "self._check_restore(report, report.ledger.read.num_bytes + 0 * bytes_before)",
    ),
    Mutant(
        "accounts that are not balanced",
        _RANK,
        "if account.total != volume(pools[account.pool], counts[account.pool])",
        "if account.total.units > 1 << 30",
        equivalent="no store unbalances an account, and a ledger that does is found by the faults' own sums",
    ),
)
