"""All mutants, in the order of the packages that they break."""

from __future__ import annotations

from tests.mutation import lookup_mutants as lookups
from tests.mutation import policy_mutants as policies
from tests.mutation import transfer_mutants as transfers

MUTANTS = (
    *policies.POLICY_MUTANTS,
    *policies.RESOLVE_MUTANTS,
    *policies.PLAN_MUTANTS,
    *policies.LEDGER_MUTANTS,
    *transfers.KEY_MUTANTS,
    *lookups.PREFIX_MUTANTS,
    *lookups.LOOKUP_MUTANTS,
    *transfers.TRANSFER_MUTANTS,
    *transfers.CHECK_MUTANTS,
)
