"""All limits and defaults. Every name says its unit.

Limits of the service are those of Azure Service Bus Standard; limits of the protocol suit the official clients.
"""

from __future__ import annotations

from typing import Final

# --- AMQP: what a peer can make us hold -----------------------------------------------------------------------------
FRAME_BYTES_MAX: Final = 65_536
FRAME_BYTES_MIN: Final = 512
OUTGOING_FRAME_BYTES_MAX: Final = 1024 * 1024  # for peers that announce no limit
CHANNEL_MAX: Final = 4_999
HANDLE_MAX: Final = 4_999
NESTING_DEPTH_MAX: Final = 32
COMPOUND_ITEMS_MAX: Final = 65_536
ZERO_WIDTH_ITEMS_MAX: Final = 256  # array items without bytes: a small frame must not expand to a long list
SASL_FRAME_BYTES_MAX: Final = 8_192
PIPELINED_BYTES_MAX: Final = 262_144  # input held while the owner decides the SASL exchange
LINKS_PER_CONNECTION_MAX: Final = 10_000
PARTIAL_BYTES_MAX: Final = 128 * 1024 * 1024  # multi-frame deliveries being assembled on one connection
PARTIAL_BYTES_NAMESPACE_MAX: Final = 384 * 1024 * 1024
PARTIAL_BYTES_PROCESS_MAX: Final = 512 * 1024 * 1024
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024  # responses waiting for credit on one connection
ANSWER_BYTES_NAMESPACE_MAX: Final = 128 * 1024 * 1024
ANSWER_BYTES_PROCESS_MAX: Final = 192 * 1024 * 1024
TRANSACTION_BYTES_MAX: Final = 128 * 1024 * 1024  # messages in open transactions of one connection
TRANSACTION_BYTES_NAMESPACE_MAX: Final = 384 * 1024 * 1024
TRANSACTION_BYTES_PROCESS_MAX: Final = 512 * 1024 * 1024
TRANSACTION_MESSAGES_MAX: Final = 100
TRANSACTION_MS_MAX: Final = 120_000
TRANSACTIONS_PER_CONNECTION_MAX: Final = 1_000
ATTACH_BYTES_MAX: Final = 16 * 1024  # per attach frame
ATTACH_BYTES_USUAL: Final = 1024  # of larger attach frames only the necessary parts are kept
LINK_BYTES_MAX: Final = 64 * 1024 * 1024  # links, sessions and tokens of one connection
LINK_BYTES_NAMESPACE_MAX: Final = 256 * 1024 * 1024
LINK_BYTES_PROCESS_MAX: Final = 384 * 1024 * 1024
LINK_OBJECT_BYTES: Final = 3 * 1024  # memory of a link, session or token, besides what the client sends
SESSION_STATES_BYTES_MAX: Final = 256 * 1024 * 1024  # states of one entity's sessions, plus 1 KiB per session
SESSION_STATES_BYTES_NAMESPACE_MAX: Final = 384 * 1024 * 1024
SESSION_STATES_BYTES_PROCESS_MAX: Final = 512 * 1024 * 1024
CHANGES_BYTES_MAX: Final = (
    256 * 1024 * 1024
)  # properties changed on one entity's messages, beyond 512 bytes per message
CHANGES_BYTES_NAMESPACE_MAX: Final = 384 * 1024 * 1024
CHANGES_BYTES_PROCESS_MAX: Final = 512 * 1024 * 1024
DUPLICATE_IDS_BYTES_MAX: Final = 512 * 1024 * 1024  # message ids that one entity remembers, plus 320 bytes each
DUPLICATE_IDS_BYTES_NAMESPACE_MAX: Final = 768 * 1024 * 1024
DUPLICATE_IDS_BYTES_PROCESS_MAX: Final = 1024 * 1024 * 1024
RULES_BYTES_MAX: Final = 256 * 1024 * 1024  # rules of one topic: their names, expressions and values, plus 2 KiB each
RULES_BYTES_NAMESPACE_MAX: Final = 384 * 1024 * 1024
RULES_BYTES_PROCESS_MAX: Final = 512 * 1024 * 1024
RULE_OBJECT_BYTES: Final = 2 * 1024  # memory of a rule, besides what the client sends
FRAMES_BEHIND_MAX: Final = 20_000  # answers of one connection queued behind transfers for the peer's window
HEARTBEAT_INTERVAL_MS_MIN: Final = 250
INCOMING_WINDOW_TRANSFERS: Final = 5_000
UNSETTLED_DELIVERIES_MAX: Final = 10_000
WRITE_BUFFER_BYTES_MAX: Final = 16 * 1024 * 1024  # unread responses; above this, the peer's further requests wait
WRITE_BUFFER_BYTES_HIGH: Final = 1024 * 1024  # unread messages; above this, further messages stay in their queues
WRITTEN_LOOK_MS: Final = 10  # how often a full socket is checked for messages that leave their queue once written
OUTPUT_STEP_BYTES: Final = 512 * 1024  # step in which a large message is written to the socket
IDLE_TIMEOUT_MS: Final = 240_000
SENDER_CREDIT: Final = 1_000
FIRST_DELIVERY_ID: Final = 70_000  # far from the clients' own ids, because the Python SDK confuses the two directions

# --- connections ----------------------------------------------------------------------------------------------------
CONNECTIONS_MAX: Final = 5_000
HANDSHAKE_TIMEOUT_MS: Final = 20_000
TOKEN_TIMEOUT_MS: Final = 20_000
PEER_STALL_TIMEOUT_MS: Final = 60_000  # to complete a frame that was begun, and to read what we sent
LINKLESS_TIMEOUT_MS: Final = 300_000  # for a connection without links
CLOCK_WATCH_MS: Final = 500  # how often the broker checks whether the system's clock was set
# Limits for a client without a valid token: enough to put one, and little else.
STRANGERS_MAX: Final = 500  # per namespace; one more disconnects the oldest
STRANGERS_PER_ADDRESS_MAX: Final = 250
STRANGER_INPUT_BYTES_MAX: Final = 128 * 1024  # total input until a token is accepted
STRANGER_FRAME_BYTES_MAX: Final = 4 * 1024  # per frame that is not a transfer
STRANGER_LINKS_MAX: Final = 128  # the JavaScript client opens a pair for each session receiver
STRANGER_SESSIONS_MAX: Final = 64
STRANGER_FRAMES_MAX: Final = 1_000  # AMQP frames until a token is accepted, and as many of a WebSocket
STRANGER_TRANSACTIONS_MAX: Final = 128  # open at once; .NET and Java declare one for each scope before the first token
TOKEN_MESSAGE_BYTES_MAX: Final = 64 * 1024  # a request to $cbs, before and after the first token
TOKEN_PROPERTIES_BYTES_MAX: Final = 4 * 1024  # the rest of that request, without the token
WRONG_KEY_PAUSE_MS: Final = 100  # delay of the answer to a wrong key, times the recent wrong keys from that address
WRONG_KEY_PAUSE_MS_MAX: Final = 15_000
WRONG_KEY_MEMORY_MS: Final = 6_000  # one wrong key is forgotten per interval
WRONG_KEY_ADDRESSES_MAX: Final = 1_024
TOKENS_PER_CONNECTION_MAX: Final = 1_000
TOKEN_EXPIRY_GRACE_MS: Final = 60_000
TOKEN_BYTES_MAX: Final = 64 * 1024
POLICIES_PER_SCOPE_MAX: Final = 12
POLICY_NAME_CHARS_MAX: Final = 256
POLICY_KEY_CHARS_MAX: Final = 256
CLIENT_ID_CHARS_MAX: Final = 256  # of an application at an identity provider
CLIENT_SECRET_BYTES_MAX: Final = 4 * 1024
JWT_KEYS_MAX: Final = 100  # a token without a key id is tried with all keys
JWT_RSA_BITS_MIN: Final = 2_048
JWT_RSA_BITS_MAX: Final = 8_192  # the cost of verifying grows with the square

# --- one port: sockets before AMQP, and HTTP --------------------------------------------------------------------------
ARRIVALS_MAX: Final = 1_000  # sockets whose protocol is still unknown; one more disconnects the oldest
HOST_NAME_CHARS_MAX: Final = 253
SHUTDOWN_TIMEOUT_MS: Final = 2_000  # for the peer to complete the shutdown of TLS or a WebSocket
HTTP_CONNECTIONS_MAX: Final = 5_000  # including WebSockets
HTTP_LINE_BYTES_MAX: Final = 8_192
HTTP_FIELD_BYTES_MAX: Final = 32_768  # per header, because tokens of large directories are sent in one
HTTP_FIELDS_MAX: Final = 100
HTTP_HEAD_BYTES_MAX: Final = 128 * 1024  # of a request whose head is not complete
HTTP_HEADS_BYTES_MAX: Final = 16 * 1024 * 1024  # incomplete heads of all clients, before anybody shows a key
HTTP_BODY_BYTES_MAX: Final = 2 * 1024 * 1024
HTTP_BODIES_BYTES_MAX: Final = 64 * 1024 * 1024  # bodies being read at the same time, before authentication
HTTP_BODY_TIMEOUT_MS: Final = 30_000
HTTP_IDLE_TIMEOUT_MS: Final = 75_000  # from one response to the next request, including the time to read the response
WEBSOCKET_MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
WEBSOCKET_PIECE_BYTES: Final = 256 * 1024  # the most a client puts into one WebSocket message

# --- messages -------------------------------------------------------------------------------------------------------
MESSAGE_BYTES_DEFAULT: Final = 256 * 1024
MESSAGE_BYTES_MAX: Final = 100 * 1024 * 1024
BATCH_BYTES_MAX: Final = 1024 * 1024  # announced to senders when messages may be larger
APPLICATION_PROPERTY_BYTES_MAX: Final = 32 * 1024
APPLICATION_PROPERTIES_BYTES_MAX: Final = 64 * 1024
MESSAGE_ID_CHARS_MAX: Final = 128
SESSION_ID_CHARS_MAX: Final = 128
PARTITION_KEY_CHARS_MAX: Final = 128
BATCH_MESSAGES_MAX: Final = 4_500
DEAD_LETTER_TEXT_CHARS_MAX: Final = 4_096

# --- entities -------------------------------------------------------------------------------------------------------
ENTITY_PATH_CHARS_MAX: Final = 260
NAMESPACES_MAX: Final = 100
NAMESPACE_NAME_CHARS_MAX: Final = 50
SUBSCRIPTION_NAME_CHARS_MAX: Final = 50
RULE_NAME_CHARS_MAX: Final = 50
ENTITIES_MAX: Final = 10_000
QUEUE_MEGABYTES_DEFAULT: Final = 1_024
QUEUE_MEGABYTES_MAX: Final = 81_920
LOCK_DURATION_MS_DEFAULT: Final = 60_000
LOCK_DURATION_MS_MIN: Final = 5_000
LOCK_DURATION_MS_MAX: Final = 300_000
MAX_DELIVERY_COUNT_DEFAULT: Final = 10
MAX_DELIVERY_COUNT_MAX: Final = 2_147_483_647
DUPLICATE_WINDOW_MS_DEFAULT: Final = 600_000
DUPLICATE_WINDOW_MS_MIN: Final = 5_000  # as in the official emulator; Azure's minimum is 20 s
DUPLICATE_WINDOW_MS_MAX: Final = 7 * 86_400_000
TIME_TO_LIVE_MS_MIN: Final = 1_000
AUTO_DELETE_ON_IDLE_MS_MIN: Final = 300_000
TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999; no later date can be represented
UNLIMITED_MS: Final = 922_337_203_685_477  # P10675199DT2H48M5.477S, the service's "never"
SESSION_STATE_BYTES_MAX: Final = 256 * 1024
ACCEPT_SESSION_TIMEOUT_MS_DEFAULT: Final = 65_000
SUBSCRIPTIONS_PER_TOPIC_MAX: Final = 2_000
SQL_RULES_PER_TOPIC_MAX: Final = 2_000  # rules that must be evaluated one by one
RELAY_DESTINATIONS_MAX: Final = 100  # that a link without an address remembers; the least recent one is forgotten
TEMPORARY_NODES_PER_CONNECTION_MAX: Final = 100  # queues and topics of JMS, deleted with the connection
VOLATILE_SUBSCRIPTIONS_PER_CONNECTION_MAX: Final = 1_000  # of JMS consumers, deleted with their last link
JMS_NAME_CHARS_MAX: Final = 128  # of a durable subscription, as JMS requires
SELECTORS_PER_ENTITY_MAX: Final = 1_000  # different message selectors in use at the same time
CORRELATION_RULES_PER_TOPIC_MAX: Final = 100_000
FORWARD_HOPS_MAX: Final = 4
USER_METADATA_CHARS_MAX: Final = 1_024
FAULT_DELAY_MS_MAX: Final = 600_000
SESSION_GRACE_MS: Final = 500

# --- management calls -----------------------------------------------------------------------------------------------
PEEK_MESSAGES_MAX: Final = 250
PEEK_BYTES_MAX: Final = 768 * 1024
BATCH_DELETE_MESSAGES_MAX: Final = 500
SEQUENCE_NUMBERS_MAX: Final = 4_500
SETTLEMENTS_BYTES_MAX: Final = 8 * 1024 * 1024  # modified properties in all settlements of a call or transaction
SESSIONS_PAGE_MAX: Final = 100
EXPORT_PAGE_ITEMS: Final = 200  # each at most a few kilobytes
RULES_PAGE_MAX: Final = 100
REQUEST_VALUES_MAX: Final = 65_536  # in the body of a request, lists and maps with all they hold
ANNOTATION_VALUES_MAX: Final = 8_192  # the same in the annotations, and in the footer, of a message

# --- administration over HTTP -----------------------------------------------------------------------------------------
ADMIN_BODY_BYTES_MAX: Final = 1024 * 1024
ADMIN_XML_ELEMENTS_MAX: Final = 10_000
ADMIN_XML_DEPTH_MAX: Final = 32
ADMIN_XML_PIECE_BYTES_MAX: Final = 128 * 1024  # a tag with its attributes and the text behind it
ADMIN_XML_NAME_CHARS_MAX: Final = 1_024  # of an element or attribute, with its namespace
ADMIN_PAGE_ENTRIES_MAX: Final = 100
ADMIN_COMMIT_TIMEOUT_MS: Final = 30_000

# --- messages over HTTP ---------------------------------------------------------------------------------------------
REST_TIMEOUT_S_DEFAULT: Final = 60
REST_TIMEOUT_S_MAX: Final = 120
# Response headers: Python's HTTP client reads at most 100 lines of 64 KiB.
REST_HEADERS_BYTES_MAX: Final = 60_000
REST_PROPERTY_HEADERS_MAX: Final = 64
REST_VALUES_MAX: Final = 8_192  # in a body that is answered as JSON; the encoded body is answered beyond
REST_VALUE_BYTES_MAX: Final = 1024 * 1024  # the same

# --- console ----------------------------------------------------------------------------------------------------------
CONSOLE_LOGINS_MAX: Final = 1_000  # one more ends the login that has been idle longest
CONSOLE_LOGIN_IDLE_MS: Final = 1_800_000
CONSOLE_LOGIN_MS_MAX: Final = 8 * 3_600_000
CONSOLE_SIGN_INS_MAX: Final = 1_000  # begun at an identity provider; one more forgets the oldest
CONSOLE_SIGN_INS_PER_ADDRESS_MAX: Final = 100
CONSOLE_SIGN_IN_MS_MAX: Final = 600_000
CONSOLE_EXCHANGES_MAX: Final = 8  # sign-ins for which the broker is asking a provider for a token
CONSOLE_EXCHANGES_PER_ADDRESS_MAX: Final = 2
CONSOLE_EXCHANGE_TIMEOUT_MS: Final = 10_000
CONSOLE_EXCHANGE_BYTES_MAX: Final = 256 * 1024
CONSOLE_PROVIDER_TEXT_CHARS_MAX: Final = 200  # of a provider's error, and of an account's name
CONSOLE_STREAMS_MAX: Final = 32
CONSOLE_STREAM_INTERVAL_MS: Final = 1_000
CONSOLE_STREAM_QUIET_MS: Final = 15_000  # interval of keep-alives on an idle stream
CONSOLE_ENTITIES_PAGE: Final = 250
CONSOLE_FAULTS_PAGE: Final = 100
CONSOLE_ENTITIES_MAX: Final = 20_000  # examined per response
CONSOLE_MESSAGES_PAGE: Final = 50
CONSOLE_SEARCH_MESSAGES_MAX: Final = 500  # examined per search response
CONSOLE_RECEIVE_MAX: Final = 20  # received manually at once
CONSOLE_HELD_MAX: Final = 100  # received manually but not settled, per login
CONSOLE_DELAY_S_MAX: Final = 365 * 86_400
CONSOLE_BODY_BYTES_MAX: Final = 64 * 1024  # displayed; the full body can be downloaded
CONSOLE_TEXT_CHARS_MAX: Final = 2_000
CONSOLE_PROPERTIES_MAX: Final = 200
CONSOLE_VALUES_MAX: Final = 4_096  # in a body that is displayed decoded
CONSOLE_ROW_VALUES_MAX: Final = 2_048  # in the properties of a message in a list
CONSOLE_PREVIEW_VALUES_MAX: Final = 256  # in a body that a list shows, or that a search decodes
CONSOLE_COPIES_MAX: Final = 100
CONSOLE_PURGE_MESSAGES_MAX: Final = 50_000  # per request
CONSOLE_BACKLOG_QUEUES_MAX: Final = 100
CONSOLE_BACKLOG_SAMPLE: Final = 20  # messages per queue examined for their destinations
CONSOLE_EVENTS_MAX: Final = 100
CONSOLE_LEDGER_BYTES_MAX: Final = 64 * 1024 * 1024  # read for the last hour
CONSOLE_LEDGER_MS: Final = 3_600_000

# --- store ----------------------------------------------------------------------------------------------------------
STORE_MAP_BYTES_DEFAULT: Final = 256 * 1024**3
STORE_RESERVE_BYTES: Final = 64 * 1024**2
STORE_KEY_BYTES_MAX: Final = 511  # LMDB's compile-time limit
STORE_SPACE_CHECK_MS: Final = 1_000
BACKUP_PIECE_BYTES: Final = 1024 * 1024  # read per turn of the loop
BACKUP_WAITING_BYTES_MAX: Final = 256 * 1024 * 1024  # waiting for the backup's disk
STORE_FINDINGS_MAX: Final = 1_000  # findings of each kind that a check lists; all are counted
SEQUENCE_BLOCK: Final = 1_000
PENDING_BYTES_MAX: Final = 32 * 1024**2
RESPONSES_WAITING_MAX: Final = 1_000

# --- rules: work per step, so that no step stalls the loop ------------------------------------------------------------
TICK_MESSAGES_MAX: Final = 500
SLICE_MS: Final = 4  # time per turn of the event loop for all long-running work of a namespace
INPUT_STEP_FRAMES: Final = 256  # parsed at a time
HTTP_STEP_BYTES: Final = 4 * 1024  # parsed at a time; as small as a request or chunk may be, that is a millisecond
BATCH_STEP_BYTES: Final = 8 * 1024  # larger batches are read in steps
SLICE_EVENTS: Final = 16  # frames of one client between two checks of the time
COMMIT_ROWS_MAX: Final = 4_000  # rows waiting for a commit; above this, long-running work waits
ANSWERS_WAITING_MAX: Final = 1_000  # calls after commits; above this, long-running work waits, too
GATHER_MS: Final = 8  # that a commit waits for more while clients are behind
SELECTOR_STEP_MESSAGES: Final = 16  # messages that a selector looks at between two checks of the time
SELECTED_MESSAGES_MAX: Final = 4_096  # matches that a selector remembers; meanwhile it looks at no more messages
EXPIRED_PER_ACQUIRE_MAX: Final = 1_000
BROWSE_EXPIRED_MAX: Final = 4_000  # expired messages that a peek skips; further ones are returned
COMPACT_STEP: Final = 4_096  # messages looked at in one step to forget those that have left, ...
COMPACT_EVERY: Final = 1_024  # ... after this many more have left; a small index is done at once
ACQUIRE_BYTES_MAX: Final = 4 * 1024**2
SEND_STEP_MESSAGES: Final = 250  # messages per send to a queue; larger batches are accepted in steps
FAN_OUT_COPIES_MAX: Final = 1_000  # copies of one send to a topic made at once; more are made in steps
SELECT_US_MAX: Final = 4_000  # estimated work of the rules for one send to a topic; more is done in steps
COPY_US: Final = 8  # by which ticks compare the work of rules with that of copies
FORWARD_COPIES_MAX: Final = 250  # a message forwarded to a topic counts once per matching subscription

# --- ledger and metrics -----------------------------------------------------------------------------------------------
OPERATION_STEP_BYTES: Final = 65_536  # a message costs one operation per started step of this size
METER_INTERVAL_MS: Final = 1_000  # the most that a killed broker can omit from its ledger
CONNECTIONS_RECORD_MS: Final = 60_000  # how often the ledger records connections that have not changed
LEDGER_FILE_BYTES_MAX: Final = 32 * 1024 * 1024
LEDGER_FILE_MS_MAX: Final = 60_000  # readers see only complete files, so this is their maximum delay
LEDGER_TOTAL_BYTES_MAX: Final = 4 * 1024**3  # about four weeks of a broker with three busy queues
LEDGER_LINE_BYTES_MAX: Final = 16 * 1024
LEDGER_WAITING_BYTES_MAX: Final = 4 * 1024 * 1024  # lines kept while the disk refuses writes
LEDGER_INTERVALS_WAITING_MAX: Final = 120  # across all namespaces, while the disk hangs
LEDGER_GROUPS_MAX: Final = 100_000  # sums that a reader keeps; further groups are summed as one
LEDGER_BATCH_BYTES: Final = 16 * 1024**3  # ledger files that a run reads before it commits
TABLES_KEPT_HOURS: Final = 1  # how long files that a table no longer references are kept for current readers
TABLES_VACUUM_BATCHES: Final = 20  # batches of the ledger pipeline between two vacuums
SLOW_COMMIT_MS: Final = 1_000  # a commit that takes so long is logged
SLOW_COMMIT_LOG_INTERVAL_MS: Final = 60_000  # between two log lines about slow commits
REFUSALS_KEPT: Final = 200  # the latest refused clients, for the console
REFUSALS_SHOWN: Final = 50  # of them on a page
REFUSALS_LOGGED_MAX: Final = 1_000  # addresses, policies and reasons whose log lines are summed
REFUSAL_LOG_INTERVAL_MS: Final = 60_000  # between two log lines about the same address, policy and reason
REFUSAL_NAME_CHARS_MAX: Final = 100  # of a name that a refused client gave
METRICS_ENTITIES_MAX: Final = 1_000  # entities with their own series; the others are summed as one
RATES_SAMPLES: Final = 60  # meter intervals kept for computing rates
RATES_RECENT_MS: Final = 5_000  # period over which a rate is averaged
CONNECTIONS_PAGE: Final = 200  # per response
CONNECTION_LINKS_SHOWN: Final = 10
OVERVIEW_ENTITIES_MAX: Final = 1_000  # per response
OVERVIEW_ENTITIES_LOOKED: Final = 20_000  # examined per response

# --- configuration --------------------------------------------------------------------------------------------------
CONFIG_FILE_BYTES_MAX: Final = 16 * 1024 * 1024

# --- subscription rules -----------------------------------------------------------------------------------------------
SQL_TEXT_CHARS_MAX: Final = 1_024
SELECTOR_CHARS_MAX: Final = 1_024
SQL_DEPTH_MAX: Final = 64  # nested parentheses, NOTs and signs: their evaluation is recursive
SQL_STATEMENTS_MAX: Final = 32
RULE_VALUES_MAX: Final = 256  # parameters of an expression, or properties of a correlation filter

# --- client ---------------------------------------------------------------------------------------------------------
SEND_WINDOW_DEFAULT: Final = 500
SEND_WINDOW_MAX: Final = 10_000
PREFETCH_MAX: Final = 10_000
REQUESTS_PENDING_MAX: Final = 1_000
CLIENT_TIMEOUT_MS: Final = 60_000
CLIENT_CLOSE_TIMEOUT_MS: Final = 5_000
CLIENT_WRITE_BYTES_HIGH: Final = 256 * 1024
CLIENT_FLUSH_BYTES: Final = 64 * 1024
TOKEN_LIFETIME_MS: Final = 3_600_000
TOKEN_RETRY_MS: Final = 5_000
RECONNECT_PAUSE_MS_MIN: Final = 500
RECONNECT_PAUSE_MS_MAX: Final = 30_000

# --- paired namespaces ------------------------------------------------------------------------------------------------
BACKLOG_QUEUES_DEFAULT: Final = 10
BACKLOG_QUEUE_MEGABYTES: Final = 5_120
BACKLOG_QUEUE_PAUSE_S: Final = 30.0  # how long a failed backlog queue stays out of the rotation
FAILOVER_INTERVAL_S_DEFAULT: Final = 60.0
FAILOVER_INTERVAL_S_MAX: Final = 3_600.0
PING_INTERVAL_S_DEFAULT: Final = 60.0
PING_INTERVAL_S_MIN: Final = 1.0
PING_INTERVAL_S_MAX: Final = 1_800.0
PING_BYTES: Final = 150  # encoded size of one ping
PING_TIMEOUT_S_MIN: Final = 3.0  # a new TLS connection over a long distance can take this long
TRY_TIMEOUT_S_DEFAULT: Final = 10.0
TRY_TIMEOUT_S_MIN: Final = 2.0  # the SDK takes a second to report that an entity does not exist
TRY_TIMEOUT_S_MAX: Final = 600.0
SENDS_IN_FLIGHT_DEFAULT: Final = 10  # per paired sender, each on its own connection
SENDS_IN_FLIGHT_MAX: Final = 1_000
PAIRED_SEND_TIMEOUT_S_MIN: Final = 60.0  # default timeout of a send, or twice the failover interval if that is longer
EVENTS_WAITING_MAX: Final = 10_000  # for slow listeners
PING_REFUSALS_DEFAULT: Final = 3  # consecutive refused pings until the entity fails back
PING_REFUSALS_MAX: Final = 1_000_000
PAIRING_PAUSE_S_MIN: Final = 1.0  # between two searches for backlog queues
PAIRING_PAUSE_S_MAX: Final = 30.0
ADMIN_TIMEOUT_S_MIN: Final = 10.0  # for an answer to a request of the administration client
PAIRED_TIMEOUT_S_MAX: Final = 31_536_000.0  # a year; a longer timeout, such as math.inf, means this
HOLD_PAUSE_S_MIN: Final = 0.1  # between two attempts of a held send
HOLD_PAUSE_S_MAX: Final = 2.0
JITTER: Final = 0.25  # a pause is up to this part shorter, so that many do not try again at the same moment
BEAT_S: Final = 0.2  # how often a pair checks that its process gets the CPU
BEAT_SLACK_S: Final = 0.1  # a beat that is later than this was starved
STARVED_S_MIN: Final = 1.0  # starvation that is worth an event
STARVED_PAUSE_S: Final = 10.0  # between two such events
OPENINGS_START: Final = 8  # links to one namespace that open at once; grows with every success
OPENINGS_MIN: Final = 2
OPENINGS_MAX: Final = 64
OPENING_SLOT_S: Final = 1.0  # an opening that takes longer waits for the peer, and lets the next one begin
LINK_LOOK_S: Final = 0.02  # how often to check whether those that wait for a link need another one
LINK_WAIT_S: Final = 0.1  # opening a link takes about as long
OPENING_S_MAX: Final = 120.0  # however much progress it makes
WIRE_FAREWELL_S: Final = 2.0  # how long closing a sender waits for the answers to its sends
LINK_LINGER_S: Final = 5.0  # how long links stay open after the last sender that could use them was closed
RESTORED_BYTES_MAX: Final = 128 * 1024 * 1024  # unpacked size of a packed message
SESSION_CHECK_S_MIN: Final = 1.0  # between two checks whether a session's messages have left a backlog queue
PRIMARY_NAME_CHARS_MAX: Final = 200

# --- syphon -----------------------------------------------------------------------------------------------------------
SYPHON_RECEIVE_S: Final = 900.0  # one long receive: four per hour and queue while nothing is diverted
SYPHON_BATCH_MESSAGES: Final = 250  # received at once, and sent at once to one destination
SYPHON_BATCH_BYTES: Final = 2 * 1024 * 1024
SYPHON_HELD_MESSAGES_MAX: Final = 4_000  # received but not settled, across all queues
SYPHON_HELD_BYTES_MAX: Final = 64 * 1024 * 1024
SYPHON_STALLED_MESSAGES_MAX: Final = 20  # kept to retry a failing destination; its other messages are set aside
SYPHON_ASIDE_MESSAGES_MAX: Final = 1_500  # locked on one link but set aside; beyond this the link is reopened
SYPHON_WINDOW: Final = 1_000
SYPHON_PAUSE_MS_MIN: Final = 500
SYPHON_PAUSE_MS_MAX: Final = 60_000
SYPHON_SLOW_S: Final = 2.0  # a slower send delays only its own destination
SYPHON_SEND_TIMEOUT_S: Final = 30.0
SYPHON_CONNECT_TIMEOUT_MS: Final = 15_000
SYPHON_LOOK_S: Final = 60.0  # between two looks for new backlog queues of the primary
SYPHON_STOP_S: Final = 5.0  # for sends in progress when it is stopped
SYPHON_LANE_IDLE_S: Final = 600.0  # a destination idle for this long loses its link
SYPHON_ROUND_S: Final = 20.0  # how long the tasks of one Spark round receive
SYPHON_ROUND_S_MAX: Final = 3_600.0
SYPHON_ROUND_MESSAGES: Final = 50_000  # settled per slot and round
SYPHON_ROUND_FAILURES_MAX: Final = 3  # consecutive failed rounds before the job gives up
SYPHON_WATCH_MESSAGES: Final = 1_000  # moved by the driver itself before it starts a round
SYPHON_SLOTS_MAX: Final = 32  # concurrent tasks per backlog queue
SYPHON_FAILING_TOLD_MAX: Final = 1_000  # failing destinations passed on to the next round
BACKLOG_LOOK_S: Final = 60.0  # how often a running syphon records the size of the backlog
BACKLOG_LOOK_TIMEOUT_S: Final = 15.0
PAIR_CLOSE_S: Final = 5.0  # after one namespace of a pair is closed or faulted, time to close the other

# --- plan and report --------------------------------------------------------------------------------------------------
PLAN_COUNT_MAX: Final = 1_000_000  # clients, senders, entities, queues
PLAN_RATE_MAX: Final = 1e9  # messages a second
PLAN_OUTAGE_S_MAX: Final = 30 * 86_400
PLAN_EXACT_STEPS_MAX: Final = 3_000_000  # a tenth of a second of the exact recurrence; longer ones are approximated
PLAN_TRIALS_MAX: Final = 100_000_000
PLAN_ENVELOPE_BYTES: Final = 256  # the most that the backlog envelope adds to a message, for a path of 150 characters
SYPHON_DRAIN_RATE: Final = 10_400.0  # messages per second: the slowest measured drain (docs/syphon.md)
REPORT_POINTS_MAX: Final = 240  # per time axis
REPORT_ENTITIES: Final = 12  # shown by name; the others are summed
REPORT_ENTITIES_MAX: Final = 200
REPORT_FAILOVERS: Final = 40  # shown individually, those that diverted most; the others are summed
REPORT_FINE_BYTES_MAX: Final = 64 * 1024 * 1024  # of ledger files read for charts by the second
REPORT_NAME_CHARS: Final = 60  # per name in a chart or table cell

# --- Spark: the source and the sink -----------------------------------------------------------------------------------
BLOCKING_ATTEMPTS_MAX: Final = 8  # about a minute of pauses before the caller sees the error
SPARK_BATCH_ROWS: Final = 1_000  # per Arrow batch
SPARK_BATCH_BYTES: Final = 64 * 1024 * 1024  # bodies per Arrow batch, unless a single message is larger
SPARK_LAYOUTS_MAX: Final = 4  # tried on the messages of one batch
SPARK_ALIKE_ROWS_MIN: Final = 128  # fewer of one layout are read one by one
SPARK_PARTITION_MESSAGES_MIN: Final = 1_000  # fewer are not worth a task
SPARK_PARTITIONS_MAX: Final = 10_000
SPARK_BROWSE_MESSAGES_DEFAULT: Final = 100_000  # per micro-batch
SPARK_CLAIM_MESSAGES_DEFAULT: Final = 10_000  # claimed one by one, by the driver alone
SPARK_TRIGGER_MESSAGES_MAX: Final = 100_000_000
SPARK_WAIT_S_DEFAULT: Final = 10.0
SPARK_DELAY_S_DEFAULT: Final = 900.0  # how long a batch of fewer than minMessagesPerTrigger messages is held back
SPARK_WAIT_S_MIN: Final = 0.1
SPARK_WAIT_S_MAX: Final = 3_600.0
SPARK_CLAIM_NAME_CHARS_MAX: Final = 64
SPARK_JOB_ID_CHARS_MAX: Final = 64  # forms a message id together with partition and row
SPARK_SEND_MESSAGES_DEFAULT: Final = 500  # per delivery of the sink
SPARK_ATTEMPTS_MAX: Final = 5  # per delivery of the sink, before its task fails and is retried as a whole
SPARK_PARCELS_WAITING_MAX: Final = 8  # deliveries of one task without an outcome
SPARK_REFUSED_ROWS_MAX: Final = 10_000  # passed from one task to the driver, for a table
SPARK_REFUSED_BYTES_MAX: Final = 64 * 1024 * 1024
