"""Faults that users of comparable systems met in public, each with the right outcome and the tests in which it is met.

A test that is not there fails `tests/test_faults.py`, and so does a fault without a test. `docs/faults.md` is made from here.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong elsewhere, what is right, and where that is shown: `file::test`, without `tests/` and `.py`."""

    fault: str
    right: str
    tests: tuple[str, ...]


APPROVALS: tuple[Fault, ...] = (
    Fault(
        "A mail scanner opens approve and deny, follows client redirects and runs scripts.",
        "Nothing changes.",
        ("test_links::test_no_scanner_decides_by_a_link_and_the_first_click_after_a_restart_counts",),
    ),
    Fault(
        "One channel still sends one-click links after the others were mended.",
        "No link of any channel decides.",
        ("test_faults::test_no_link_of_any_channel_says_a_decision",),
    ),
    Fault(
        "HEAD, then several GETs of a link.",
        "The same page each time, and nothing is used up.",
        (
            "test_web::test_get_and_head_change_nothing_and_are_the_same_each_time",
            "test_web_whole::test_looking_changes_nothing_and_only_a_person_with_the_form_decides",
        ),
    ),
    Fault(
        "A deploy changes the format of tokens; a waiting record has none.",
        "What waits can still be decided, and what has no token opens nothing.",
        (
            "test_links::test_a_dispatcher_that_is_killed_between_minting_and_sending_leaves_an_approval_that_can_be_decided",
            "test_web::test_an_old_or_used_link_shows_no_more_than_none",
        ),
    ),
    Fault(
        "Whoever owns a job approves it through a second door.",
        "Refused at every door: the table of doors and rules.",
        ("test_decision_doors::test_every_door_keeps_every_rule", "test_gate::test_whoever_asked_does_not_decide"),
    ),
    Fault(
        "A rule is set without the one that it needs, and is dropped silently.",
        "It does not start.",
        ("test_rules::test_what_cannot_stand_refuses_to_start", "test_rules::test_without_approvers_rules_refuse_to_start"),
    ),
    Fault(
        "A mounted part of the application asks nobody who they are.",
        "A walk over every route finds authentication, and a form's own token on pages.",
        (
            "test_permissions::test_every_route_of_the_api_asks_who_is_there",
            "test_permissions::test_every_form_of_a_page_is_its_own_and_of_its_session",
            "test_permissions::test_pages_show_nothing_to_nobody",
        ),
    ),
    Fault(
        "A person's answer and the time-out land together.",
        "One wins, and the other is told so.",
        (
            "test_decision_races::test_a_human_against_the_time_out",
            "test_decision_races::test_a_sweep_that_waits_for_a_human_ends_nothing",
        ),
    ),
    Fault(
        "One time-out serves for run time and for the wait for a person.",
        "Each has its own clock.",
        ("test_faults::test_a_wait_for_a_person_is_no_run_time",),
    ),
    Fault(
        "What waits was in memory, and the first click after a restart is lost.",
        "It is in the database; who may not click is answered.",
        (
            "test_links::test_no_scanner_decides_by_a_link_and_the_first_click_after_a_restart_counts",
            "test_gate::test_who_may_not_decide_is_told_why",
        ),
    ),
    Fault(
        "Buttons live on after a decision elsewhere.",
        "A stale click learns who decided and when.",
        (
            "test_web::test_a_stale_click_learns_who_decided_and_when",
            "test_decisions::test_who_comes_too_late_is_told_who_was_first_and_when",
        ),
    ),
    Fault(
        "A rejected call is executed by another route.",
        "Nothing is sent whose approval does not stand for its digest.",
        (
            "test_dispatch::test_a_body_that_is_not_the_approved_one_is_not_leased",
            "test_dispatch::test_an_effect_whose_approval_does_not_stand_is_not_leased",
        ),
    ),
    Fault(
        "The same call id comes with other arguments.",
        "Refused; an approval is used once.",
        (
            "test_http_accept::test_a_key_with_another_payload_is_refused_also_while_the_first_runs",
            "test_gate::test_a_decision_is_bound_to_what_was_shown",
        ),
    ),
    Fault(
        "The policy is asked again on resuming, and turns what was decided.",
        "Decided is decided; the policy's version is pinned.",
        ("test_policy::test_decided_is_decided_whatever_the_policy_says_later",),
    ),
    Fault(
        "Resuming runs the code before the gate once more, with its effects.",
        "Effects exist only after the gate, and steps are kept.",
        (
            "test_gate::test_an_effect_exists_only_after_a_person_approved",
            "test_steps::test_a_kill_after_a_step_does_not_repeat_it_and_one_within_does",
        ),
    ),
    Fault(
        "A gate is skipped because something ran between making the link and waiting.",
        "Job, proposal and approval are one transaction.",
        (
            "test_faults::test_a_hold_is_there_whole_or_not_at_all",
            "test_links::test_a_dispatcher_that_is_killed_between_minting_and_sending_leaves_an_approval_that_can_be_decided",
        ),
    ),
    Fault(
        "A truthy text counts as yes.",
        "Only the exact words decide.",
        ("test_gate::test_only_the_exact_words_decide", "test_policy::test_a_truthy_word_is_no_yes"),
    ),
    Fault(
        "An approval starts another run that delivers again.",
        "One sending is in the ledger.",
        (
            "test_dispatch::test_an_approved_effect_is_sent_once_and_its_job_is_completed",
            "test_gate::test_of_many_decisions_at_once_exactly_one_wins",
        ),
    ),
    Fault(
        "An expiry in local time is kept as UTC.",
        "The same moment in servers of any zone, and the zone is shown.",
        ("test_decisions::test_deadlines_are_the_same_moment_whatever_zone_the_server_is_in",),
    ),
)

DELIVERY: tuple[Fault, ...] = (
    Fault(
        "Check, then insert lets two through; who loses is answered 503 and storms.",
        "One job; who loses reads it and replays.",
        (
            "test_http_accept::test_parallel_deliveries_of_one_key_make_one_job_and_one_lease",
            "test_key_faults::test_who_meets_a_rival_in_the_middle_replays_or_becomes_the_owner",
        ),
    ),
    Fault(
        "A crash between claim and receipt wedges a key, or a time limit frees a live one.",
        "Lease and fence decide.",
        (
            "test_kill::test_another_worker_finishes_the_job_of_a_killed_one",
            "test_key_faults::test_no_exception_and_no_time_frees_a_key",
        ),
    ),
    Fault(
        "A key is released on an exception after a side effect.",
        "It is kept.",
        ("test_key_faults::test_no_exception_and_no_time_frees_a_key",),
    ),
    Fault(
        "One and many are submitted by two code paths that disagree.",
        "One path.",
        (
            "test_key_faults::test_one_and_many_and_read_or_not_are_one_path",
            "test_many::test_each_of_many_is_answered_as_if_it_had_come_alone",
        ),
    ),
    Fault(
        "A hash is taken over JSON that was written anew, and a signature breaks.",
        "The bytes that leave are the bytes that are signed.",
        (
            "test_signing::test_a_signed_http_target_gets_a_signature_over_the_bytes_it_received",
            "test_signing::test_the_same_value_written_otherwise_is_not_what_was_signed",
        ),
    ),
    Fault(
        "SMTP times out after DATA although the server accepted.",
        "Unknown, not sent again, looked up where it can be, and an operator's item otherwise.",
        (
            "test_connector_smtp::test_an_end_after_the_final_dot_without_a_clear_answer_is_ambiguous",
            "test_dispatch::test_an_ambiguous_end_is_unknown_and_never_sent_again_by_itself",
            "chaos/test_outbox::test_no_effect_is_done_twice_by_providers_that_break_a_fifth_of_them",
        ),
    ),
    Fault(
        "A loop of reconnects sets the count of attempts back.",
        "The count is in the database.",
        ("test_dispatch::test_what_was_surely_not_accepted_is_tried_again_and_at_last_refused",),
    ),
    Fault(
        "Maybe sent, correctly, and nobody is told.",
        "An item with age, evidence and its verbs; alerts that repeat.",
        (
            "test_alerts::test_an_effect_left_unknown_is_an_alarm_once_even_after_a_person_closed_it",
            "test_reconcile::test_people_are_reminded_of_what_is_unknown_for_long_once_a_day",
            "test_effects_session::test_the_session_in_the_documentation_is_what_the_commands_say",
        ),
    ),
    Fault(
        "A row fits no sweeper's query.",
        "Every state that is no end has an owner, proven from the model.",
        (
            "test_owners::test_every_live_state_has_an_owner_and_every_owner_a_shape_to_try",
            "test_owners::test_its_owner_finds_it",
        ),
    ),
    Fault(
        "Keeping books fails after the sending, and it is sent again each round.",
        "The receipt comes first, and is kept once.",
        (
            "test_delivery::test_receipts_whose_commit_gave_no_answer_are_kept_once",
            "test_dispatch::test_a_receipt_that_is_kept_again_after_a_doubtful_commit_is_one",
        ),
    ),
    Fault(
        "The connection is reset after the body arrived, and that counts as never sent.",
        "Only what failed before the request left was not sent.",
        (
            "test_egress::test_whatever_breaks_after_the_first_byte_left_is_maybe_sent",
            "test_connector_http::test_an_end_after_which_it_may_be_done_is_ambiguous_and_never_sent_again_here",
        ),
    ),
    Fault(
        "POST is put on the retry list to hide connections that went stale.",
        "Never without a native key; a stale connection is not used.",
        (
            "test_connections::test_a_connection_that_the_other_side_closed_is_not_used_again",
            "test_connector_http::test_an_end_after_which_it_may_be_done_is_ambiguous_and_never_sent_again_here",
        ),
    ),
    Fault(
        "A refusal of an inner address is tried up the whole ladder.",
        "Final at once.",
        (
            "test_connector_http::test_a_blocked_address_is_final_and_a_closed_port_may_be_tried_again",
            "test_connector_smtp::test_a_blocked_address_is_final_and_a_closed_port_may_be_tried_again",
        ),
    ),
    Fault(
        "Odd spellings of inner addresses, and a redirect to the metadata address, get through.",
        "Blocked, and redirects are not followed.",
        (
            "test_egress_fuzz::test_no_spelling_of_an_inner_address_gets_out",
            "test_egress::test_a_redirect_is_an_answer_and_is_not_followed",
        ),
    ),
    Fault(
        "The check covers one way out and not the token URL, the test button or the proxy.",
        "One client for all.",
        (
            "test_one_way_out::test_only_the_way_out_and_those_that_are_named_here_know_how_to_dial",
            "test_egress::test_proxies_of_the_environment_are_not_used",
        ),
    ),
    Fault(
        "A cursor by number skips a lower one that commits late.",
        "Claimed by state, never by a high-water mark.",
        ("test_faults::test_what_commits_late_under_a_lower_id_is_sent_all_the_same",),
    ),
    Fault(
        "The kill switch reports success while something is on the wire.",
        "What is on the wire is counted until it has landed.",
        (
            "test_switch_parts::test_what_is_on_the_wire_is_counted_by_part_until_it_has_landed",
            "test_switch_meanwhile::test_on_the_wire_it_lands_and_is_counted_until_then_and_its_successor_stays",
        ),
    ),
    Fault(
        "An agent turns the switch on again.",
        "Refused: only people turn it on.",
        (
            "test_switch::test_a_program_turns_it_off_and_never_on",
            "test_switch_parts::test_only_a_person_of_the_tenant_turns_a_part_on",
        ),
    ),
    Fault(
        "Somebody who may only read changes a job.",
        "Every verb is checked on the server.",
        (
            "test_permissions::test_every_verb_is_asked_for_by_its_routes",
            "test_web_operators::test_only_our_own_form_of_somebody_with_the_role_changes_anything",
        ),
    ),
)

SECTIONS = {"Approvals": APPROVALS, "Keys and delivery": DELIVERY}
