"""Where the tests of a module are: `tests/<package>/test_<module>.py`, or the file that this table names.

Modules are listed under another file where they are only used together, so that their tests are those of the whole.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, TESTS = ROOT / "src" / "twinbus", ROOT / "tests"

# Test -> the modules of the same package that it tests besides the one of its name.
TESTED_BY: dict[str, str] = {
    "amqp/test_codec.py": "decoding encoding types",
    "amqp/test_connection.py": "frames events attachments",
    "amqp/test_transfers.py": "outgoing",
    "amqp/test_wire_rules.py": "serial",
    "broker/configuration/test_config.py": "emulator file section toml",
    "broker/connections/test_flow.py": "patience",
    "broker/connections/test_listener.py": "doorway",
    "broker/connections/test_attachment.py": "tracking",
    "broker/http/admin/test_caller.py": "refusals",
    "broker/http/admin/test_entities.py": "api forwarding namespace_xml resource",
    "broker/http/admin/test_entity_xml.py": "authorization_xml",
    "broker/http/admin/test_rule_xml.py": "value_xml",
    "broker/http/admin/test_topics.py": "rules",
    "broker/http/admin/test_xml_in.py": "errors feed xml_out",
    "broker/http/console/test_chosen.py": "edited fields search",
    "broker/http/console/test_console.py": "answers assets logins visitor",
    "broker/http/console/test_entities.py": "backlog hour shown streams",
    "broker/http/console/test_sign_in.py": "exchange",
    "broker/http/rest/test_api.py": "properties rendering",
    "broker/links/test_browser.py": "source_filters",
    "broker/links/test_publisher.py": "senders",
    "broker/links/test_transactions.py": "pending_changes",
    "broker/messages/test_message_view.py": "changes",
    "broker/messages/test_stored.py": "stored_head",
    "broker/metering/test_meter.py": "scribe",
    "broker/metering/test_metrics.py": "histogram",
    "broker/security/test_certificates.py": "authority",
    "broker/security/test_keyring.py": "stored_policies",
    "cli/test_backup.py": "restore",
    "cli/test_context.py": "contexts",
    "cli/test_entity_group.py": "azure_directory rule subscription topic",
    "cli/test_help.py": "group main",
    "cli/test_resubmit.py": "moving",
    "cli/test_messages.py": "entity message_view output peek purge receive send work",
    "cli/test_plan.py": "chart",
    "cli/test_folders.py": "check compact",
    "cli/test_syphon.py": "adopt backlog pair pairing",
    "cli/test_target.py": "directory",
    "cli/test_terminal.py": "confirmation progress view",
    "client/test_client.py": "endpoint tls wire",
    "client/test_blocking.py": "description",
    "client/test_management.py": "requests",
    "client/test_message.py": "delivered outgoing",
    "client/test_sender.py": "batch",
    "demo/test_demo.py": "processes traffic",
    "entities/filters/test_selector.py": "selector_reader",
    "entities/filters/test_filter_model.py": "compiler conversion nodes sql view",
    "entities/filters/test_filter_examples.py": "fixed forms names",
    "entities/filters/test_correlation.py": "index",
    "entities/filters/test_stored.py": "numbers",
    "entities/test_messages.py": "commons message moves views",
    "entities/test_expiry.py": "due",
    "entities/test_queue.py": "receiving refusals",
    "entities/test_schedule.py": "scheduling",
    "entities/test_topic.py": "topic_settings",
    "entities/test_settings.py": "setting",
    "entities/test_namespace.py": "effects entity_ids sweep",
    "entities/test_restore.py": "audit findings",
    "ledger/test_writer.py": "files totals words",
    "paired/test_found.py": "errors",
    "paired/test_fork.py": "registry",
    "paired/syphon/test_bounds.py": "drain tally",
    "paired/syphon/test_syphon.py": "port",
    "paired/syphon/test_standing.py": "queue_look",
    "plan/test_plan.py": "bill load outage",
    "spark/ledger/test_pipeline.py": "charges folds following job migration schemas staged tables",
    "spark/report/test_page.py": "charts listing",
    "spark/report/test_gather.py": "facts queries",
    "spark/report/test_drawing.py": "palette",
    "spark/source/test_batch.py": "access browsing filtering source spans",
    "spark/source/test_browse_stream.py": "settling stream",
    "spark/source/test_sink.py": "checks columns parcels refusals",
    "spark/syphon/test_rounds.py": "task",
    "store/test_lmdb_store.py": "environment",
}
# Module or folder -> where its tests are, outside of its own place.
ELSEWHERE: dict[str, str] = {
    "broker/backup.py": "cli/test_backup.py",
    "broker/configuration/export_emulator.py": "cli/test_export.py",
    "broker/configuration/export_toml.py": "cli/test_export.py",
    "broker/configuration/export_tree.py": "cli/test_export.py",
    "broker/configured.py": "broker/configuration/test_config.py",
    "broker/http/admin/faults.py": "broker/test_faults.py",
    "broker/http/json_in.py": "broker/http/test_app.py",
    "broker/nodes/directory.py": "cli/test_entity_group.py",
    "broker/nodes/export.py": "cli/test_export.py",
    "broker/nodes/policy_requests.py": "cli/test_policy.py",
    "broker/nodes/rule_wire.py": "broker/test_topics.py",
    "broker/security/jwt_keys.py": "broker/configuration/test_jwt.py",
    "broker/server.py": "test_testing.py",
    "cli/demo.py": "demo/test_demo.py",
    "cli/fault.py": "broker/test_faults.py",
    "cli/report.py": "spark/report/test_command.py",
    "limits.py": "docs/test_limits.py",
    # Tests of the pair run on both colours; the second is generated from the first.
    "paired/_async/": "paired/test_failover.py",
    "paired/_sync/": "paired/test_sync_twin.py",
    "spark/versions.py": "spark/source/test_stream_model.py",
    "spark/plan_chart.py": "cli/test_plan.py",
    "testing_plugin.py": "test_testing.py",
    "websocket.py": "broker/connections/test_websocket.py",
}


def listed() -> dict[str, str]:
    """Modules of the tables, and their tests."""
    of_packages = {
        f"{Path(test).parent}/{module}.py": test for test, modules in TESTED_BY.items() for module in modules.split()
    }
    return of_packages | ELSEWHERE


def modules() -> list[str]:
    found = [path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py"))]
    return [module for module in found if not module.endswith(("__init__.py", "__main__.py"))]


def without_tests() -> list[str]:
    """Modules that have no test of their name and are not listed."""
    known = listed()
    return [
        f"{module} has no tests/{_own(module)}"
        for module in modules()
        if not (TESTS / _own(module)).exists()
        and module not in known
        and not any(module.startswith(each) for each in known if each.endswith("/"))
    ]


def wrong_entries() -> list[str]:
    """Entries of the table that are not true, or not needed."""
    known = listed()
    wrong = [f"tests/{test} does not exist" for test in known.values() if not (TESTS / test).exists()]
    wrong += [f"{module} does not exist" for module in known if not (SOURCE / module).exists()]
    return wrong + [
        f"{module} has tests/{_own(module)}"
        for module in known
        if module.endswith(".py") and (TESTS / _own(module)).exists()
    ]


def _own(module: str) -> Path:
    return Path(module).with_name(f"test_{Path(module).name}")
