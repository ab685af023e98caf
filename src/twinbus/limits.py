"""Every bound and default, in one place. Units are the last word of each name.

Numbers of the service are Azure Service Bus Standard's; numbers of the protocol are what the official clients need.
"""

from __future__ import annotations

from typing import Final

# --- AMQP: what a peer may make us hold -----------------------------------------------------------------------------
FRAME_BYTES_MAX: Final = 65_536
FRAME_BYTES_MIN: Final = 512
OUTGOING_FRAME_BYTES_MAX: Final = 1024 * 1024  # for peers that set no limit of their own
CHANNEL_MAX: Final = 4_999
HANDLE_MAX: Final = 4_999
NESTING_DEPTH_MAX: Final = 32
COMPOUND_ITEMS_MAX: Final = 65_536
ZERO_WIDTH_ITEMS_MAX: Final = 256  # items of an array that take no bytes: a small frame must not grow a large list
SASL_FRAME_BYTES_MAX: Final = 8_192
PIPELINED_BYTES_MAX: Final = 262_144  # input held back while the owner decides on the SASL exchange
LINKS_PER_CONNECTION_MAX: Final = 10_000
PARTIAL_BYTES_MAX: Final = 128 * 1024 * 1024  # multi-frame deliveries being assembled on one connection
PARTIAL_BYTES_NAMESPACE_MAX: Final = 384 * 1024 * 1024
PARTIAL_BYTES_PROCESS_MAX: Final = 512 * 1024 * 1024
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024  # answers that wait for credit on one connection
ANSWER_BYTES_NAMESPACE_MAX: Final = 128 * 1024 * 1024
ANSWER_BYTES_PROCESS_MAX: Final = 192 * 1024 * 1024
TRANSACTION_BYTES_MAX: Final = 128 * 1024 * 1024  # messages of the open transactions of one connection
TRANSACTION_BYTES_NAMESPACE_MAX: Final = 384 * 1024 * 1024
TRANSACTION_BYTES_PROCESS_MAX: Final = 512 * 1024 * 1024
ATTACH_BYTES_MAX: Final = 16 * 1024  # of an attach frame
ATTACH_BYTES_USUAL: Final = 1024  # of a larger one only what is needed is kept
LINK_BYTES_MAX: Final = 16 * 1024 * 1024  # attach frames of the links of one connection
LINK_BYTES_NAMESPACE_MAX: Final = 64 * 1024 * 1024
LINK_BYTES_PROCESS_MAX: Final = 96 * 1024 * 1024
FRAMES_BEHIND_MAX: Final = 20_000  # of a connection: answers that wait behind a transfer for the peer's window
HEARTBEAT_INTERVAL_MS_MIN: Final = 250
INCOMING_WINDOW_TRANSFERS: Final = 5_000
UNSETTLED_DELIVERIES_MAX: Final = 10_000
WRITE_BUFFER_BYTES_MAX: Final = 16 * 1024 * 1024  # unread answers: beyond, the peer's next requests wait
WRITE_BUFFER_BYTES_HIGH: Final = 1024 * 1024  # unread messages: beyond, the next ones stay in their queues
WRITTEN_LOOK_MS: Final = 10  # how often a full socket is asked whether messages that leave when written are written
OUTPUT_STEP_BYTES: Final = 512 * 1024  # what is written of a large message before the socket has to take it
IDLE_TIMEOUT_MS: Final = 240_000
SENDER_CREDIT: Final = 1_000
FIRST_DELIVERY_ID: Final = 70_000  # away from the clients' own ids: the Python SDK confuses the two directions

# --- connections ----------------------------------------------------------------------------------------------------
CONNECTIONS_MAX: Final = 5_000
HANDSHAKE_TIMEOUT_MS: Final = 20_000
TOKEN_TIMEOUT_MS: Final = 20_000
PEER_STALL_TIMEOUT_MS: Final = 60_000  # for a frame that was begun, and for reading what was sent
LINKLESS_TIMEOUT_MS: Final = 300_000  # a connection without a link
CLOCK_WATCH_MS: Final = 500  # how often the broker looks whether somebody set the machine's clock
# What a client without a token may do: enough to put one, and little else.
STRANGERS_MAX: Final = 500  # of a namespace: one more, and the oldest goes
STRANGERS_PER_ADDRESS_MAX: Final = 250
STRANGER_INPUT_BYTES_MAX: Final = 128 * 1024  # all that it sends until its token is accepted
STRANGER_FRAME_BYTES_MAX: Final = 4 * 1024  # of a frame that is not a transfer
STRANGER_LINKS_MAX: Final = 128  # the JavaScript client opens a pair for each of its session receivers
STRANGER_SESSIONS_MAX: Final = 64
TOKEN_MESSAGE_BYTES_MAX: Final = 64 * 1024  # a request to $cbs, before and after the first token
TOKEN_PROPERTIES_BYTES_MAX: Final = 4 * 1024  # what stands around the token in it
WRONG_KEY_PAUSE_MS: Final = 100  # before the answer to a wrong key, times the wrong keys of that address lately
WRONG_KEY_PAUSE_MS_MAX: Final = 15_000
WRONG_KEY_MEMORY_MS: Final = 6_000  # one wrong key less counts for each such while
WRONG_KEY_ADDRESSES_MAX: Final = 1_024
TOKENS_PER_CONNECTION_MAX: Final = 1_000
TOKEN_EXPIRY_GRACE_MS: Final = 60_000
TOKEN_BYTES_MAX: Final = 64 * 1024
POLICIES_PER_SCOPE_MAX: Final = 12
POLICY_NAME_CHARS_MAX: Final = 256
POLICY_KEY_CHARS_MAX: Final = 256
JWT_KEYS_MAX: Final = 100  # a token without a key id is tried with all of them
JWT_RSA_BITS_MIN: Final = 2_048
JWT_RSA_BITS_MAX: Final = 8_192  # the cost of a signature grows with the square

# --- one port: what a socket may do before it is an AMQP connection, and HTTP ----------------------------------------
ARRIVALS_MAX: Final = 1_000  # sockets that have not said yet what they speak; one more cuts the oldest
HOST_NAME_CHARS_MAX: Final = 253
SHUTDOWN_TIMEOUT_MS: Final = 2_000  # for the peer's part in closing TLS or a WebSocket
HTTP_CONNECTIONS_MAX: Final = 5_000  # WebSockets among them
HTTP_LINE_BYTES_MAX: Final = 8_192
HTTP_FIELD_BYTES_MAX: Final = 32_768  # a header: tokens of large directories come in one
HTTP_FIELDS_MAX: Final = 100
HTTP_BODY_BYTES_MAX: Final = 2 * 1024 * 1024
HTTP_BODIES_BYTES_MAX: Final = 64 * 1024 * 1024  # bodies being read at one time: nobody has been asked for a key yet
HTTP_BODY_TIMEOUT_MS: Final = 30_000
HTTP_IDLE_TIMEOUT_MS: Final = 75_000  # from one answer to the next request, reading the answer included
WEBSOCKET_MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
WEBSOCKET_PIECE_BYTES: Final = 256 * 1024  # what a client puts into one message

# --- messages -------------------------------------------------------------------------------------------------------
MESSAGE_BYTES_DEFAULT: Final = 256 * 1024
MESSAGE_BYTES_MAX: Final = 100 * 1024 * 1024
BATCH_BYTES_MAX: Final = 1024 * 1024  # told to senders, where a message may be larger
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
DUPLICATE_WINDOW_MS_MIN: Final = 5_000  # the official emulator's; the service has 20 s
DUPLICATE_WINDOW_MS_MAX: Final = 7 * 86_400_000
TIME_TO_LIVE_MS_MIN: Final = 1_000
AUTO_DELETE_ON_IDLE_MS_MIN: Final = 300_000
TIME_MS_MAX: Final = 253_402_300_799_999  # the last moment of the year 9999: what is later has no date
UNLIMITED_MS: Final = 922_337_203_685_477  # P10675199DT2H48M5.477S, the service's "never"
SESSION_STATE_BYTES_MAX: Final = 256 * 1024
ACCEPT_SESSION_TIMEOUT_MS_DEFAULT: Final = 65_000
SUBSCRIPTIONS_PER_TOPIC_MAX: Final = 2_000
SQL_RULES_PER_TOPIC_MAX: Final = 2_000  # rules that are evaluated one by one
CORRELATION_RULES_PER_TOPIC_MAX: Final = 100_000
FORWARD_HOPS_MAX: Final = 4

# --- management calls -----------------------------------------------------------------------------------------------
PEEK_MESSAGES_MAX: Final = 250
PEEK_BYTES_MAX: Final = 768 * 1024
BATCH_DELETE_MESSAGES_MAX: Final = 500
SEQUENCE_NUMBERS_MAX: Final = 4_500
SESSIONS_PAGE_MAX: Final = 100
EXPORT_PAGE_ITEMS: Final = 200  # each at most a few kilobytes
RULES_PAGE_MAX: Final = 100

# --- administration over HTTP -----------------------------------------------------------------------------------------
ADMIN_BODY_BYTES_MAX: Final = 1024 * 1024
ADMIN_XML_ELEMENTS_MAX: Final = 10_000
ADMIN_XML_DEPTH_MAX: Final = 32
ADMIN_PAGE_ENTRIES_MAX: Final = 100
ADMIN_COMMIT_TIMEOUT_MS: Final = 30_000

# --- console ----------------------------------------------------------------------------------------------------------
CONSOLE_LOGINS_MAX: Final = 1_000  # one more ends the one that was idle longest
CONSOLE_LOGIN_IDLE_MS: Final = 1_800_000
CONSOLE_LOGIN_MS_MAX: Final = 8 * 3_600_000
CONSOLE_STREAMS_MAX: Final = 32
CONSOLE_STREAM_INTERVAL_MS: Final = 1_000
CONSOLE_STREAM_QUIET_MS: Final = 15_000  # after which a stream says that it lives
CONSOLE_ENTITIES_PAGE: Final = 250
CONSOLE_FAULTS_PAGE: Final = 100
CONSOLE_ENTITIES_MAX: Final = 20_000  # looked at for one answer
CONSOLE_MESSAGES_PAGE: Final = 50
CONSOLE_SEARCH_MESSAGES_MAX: Final = 500  # looked at for one answer of a search
CONSOLE_RECEIVE_MAX: Final = 20  # received by hand at once
CONSOLE_HELD_MAX: Final = 100  # received by hand and not settled yet, of a login
CONSOLE_DELAY_S_MAX: Final = 365 * 86_400
CONSOLE_BODY_BYTES_MAX: Final = 64 * 1024  # shown; the whole of it can be downloaded
CONSOLE_TEXT_CHARS_MAX: Final = 2_000
CONSOLE_PROPERTIES_MAX: Final = 200
CONSOLE_COPIES_MAX: Final = 100
CONSOLE_PURGE_MESSAGES_MAX: Final = 50_000  # of one request
CONSOLE_BACKLOG_QUEUES_MAX: Final = 100
CONSOLE_BACKLOG_SAMPLE: Final = 20  # messages looked at for their destinations, of each queue
CONSOLE_EVENTS_MAX: Final = 100
CONSOLE_LEDGER_BYTES_MAX: Final = 64 * 1024 * 1024  # read for the last hour
CONSOLE_LEDGER_MS: Final = 3_600_000

# --- store ----------------------------------------------------------------------------------------------------------
STORE_MAP_BYTES_DEFAULT: Final = 256 * 1024**3
STORE_RESERVE_BYTES: Final = 64 * 1024**2
STORE_KEY_BYTES_MAX: Final = 511  # what LMDB is built with
STORE_SPACE_CHECK_MS: Final = 1_000
BACKUP_PIECE_BYTES: Final = 1024 * 1024  # read in one step of the loop
BACKUP_WAITING_BYTES_MAX: Final = 256 * 1024 * 1024  # for the disk of a backup
STORE_FINDINGS_MAX: Final = 1_000  # how many of each kind a check lists by number; it counts them all
SEQUENCE_BLOCK: Final = 1_000
PENDING_BYTES_MAX: Final = 32 * 1024**2
RESPONSES_WAITING_MAX: Final = 1_000

# --- rules: how much one step may do, so that no step stalls the loop -------------------------------------------------
USER_METADATA_CHARS_MAX: Final = 1_024
TICK_MESSAGES_MAX: Final = 500
SLICE_MS: Final = 4  # what all long work of a namespace takes of one turn of the event loop
INPUT_STEP_BYTES: Final = 32 * 1024  # parsed at a time
BATCH_STEP_BYTES: Final = 8 * 1024  # a batch of more is read in steps
SLICE_EVENTS: Final = 16  # frames of one client between two looks at the time
COMMIT_ROWS_MAX: Final = 4_000  # rows that wait for a commit: beyond, long work waits for it
EXPIRED_PER_ACQUIRE_MAX: Final = 1_000
FAN_OUT_COPIES_MAX: Final = 1_000  # copies of one send to a topic; beyond, they are made in steps
FORWARD_COPIES_MAX: Final = 250  # a message forwarded to a topic counts once for each subscription that takes it

# --- ledger and metrics -----------------------------------------------------------------------------------------------
OPERATION_STEP_BYTES: Final = 65_536  # a message costs one operation for each step of this size it fills or begins
METER_INTERVAL_MS: Final = 1_000  # what a killed broker can leave out of its ledger
CONNECTIONS_RECORD_MS: Final = 60_000  # how often the ledger tells of connections that stay as they are
LEDGER_FILE_BYTES_MAX: Final = 32 * 1024 * 1024
LEDGER_FILE_MS_MAX: Final = 60_000  # readers see a file when it is complete, so this is how late they are
LEDGER_TOTAL_BYTES_MAX: Final = 4 * 1024**3  # about four weeks of a broker with three busy queues
LEDGER_LINE_BYTES_MAX: Final = 16 * 1024
LEDGER_WAITING_BYTES_MAX: Final = 4 * 1024 * 1024  # lines kept while the disk refuses them
LEDGER_INTERVALS_WAITING_MAX: Final = 120  # of all namespaces, while the disk hangs
LEDGER_GROUPS_MAX: Final = 100_000  # sums that a reader holds; what is beyond is summed as one
LEDGER_BATCH_BYTES: Final = 16 * 1024**3  # of ledger files that a run reads before it commits
TABLES_KEPT_HOURS: Final = 1  # how long files stay that a table no longer names, for those who are reading them
TABLES_VACUUM_BATCHES: Final = 20  # so many batches of the ledger pipeline between two vacuums
METRICS_ENTITIES_MAX: Final = 1_000  # with series of their own; the others are summed as one
RATES_SAMPLES: Final = 60  # intervals of the meter that rates are kept of
RATES_RECENT_MS: Final = 5_000  # what a rate is the average of
CONNECTIONS_PAGE: Final = 200  # described in one answer
CONNECTION_LINKS_SHOWN: Final = 10
OVERVIEW_ENTITIES_MAX: Final = 1_000  # in one answer
OVERVIEW_ENTITIES_LOOKED: Final = 20_000  # looked at for one answer

# --- configuration --------------------------------------------------------------------------------------------------
CONFIG_FILE_BYTES_MAX: Final = 16 * 1024 * 1024

# --- subscription rules -----------------------------------------------------------------------------------------------
SQL_TEXT_CHARS_MAX: Final = 1_024
SQL_DEPTH_MAX: Final = 64  # levels of parentheses, NOT and signs that mean something: what walks them is recursive
SQL_STATEMENTS_MAX: Final = 32
RULE_VALUES_MAX: Final = 256  # parameters of a text, or properties of a correlation filter

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
TRANSACTION_MESSAGES_MAX: Final = 100
TRANSACTION_MS_MAX: Final = 120_000
TRANSACTIONS_PER_CONNECTION_MAX: Final = 1_000
FAULT_DELAY_MS_MAX: Final = 600_000
REST_TIMEOUT_S_DEFAULT: Final = 60
REST_TIMEOUT_S_MAX: Final = 120
# Headers of an answer: Python's own client reads a line of 64 KiB, and a hundred of them.
REST_HEADERS_BYTES_MAX: Final = 60_000
REST_PROPERTY_HEADERS_MAX: Final = 64

# --- paired namespaces ------------------------------------------------------------------------------------------------
BACKLOG_QUEUES_DEFAULT: Final = 10
BACKLOG_QUEUE_MEGABYTES: Final = 5_120
BACKLOG_QUEUE_PAUSE_S: Final = 30.0  # how long a backlog queue that failed stays out of the rotation
FAILOVER_INTERVAL_S_DEFAULT: Final = 60.0
FAILOVER_INTERVAL_S_MAX: Final = 3_600.0
PING_INTERVAL_S_DEFAULT: Final = 60.0
PING_INTERVAL_S_MIN: Final = 1.0
PING_INTERVAL_S_MAX: Final = 1_800.0
PING_BYTES: Final = 150  # of one ping, as the SDK encodes it
PING_TIMEOUT_S_MIN: Final = 3.0  # a new connection by TLS over a long way takes this
TRY_TIMEOUT_S_DEFAULT: Final = 10.0
TRY_TIMEOUT_S_MIN: Final = 2.0  # the SDK takes a second to say that an entity does not exist
TRY_TIMEOUT_S_MAX: Final = 600.0
SENDS_IN_FLIGHT_DEFAULT: Final = 10  # of one paired sender, each by a connection of its own
SENDS_IN_FLIGHT_MAX: Final = 1_000
PAIRED_SEND_TIMEOUT_S_MIN: Final = 60.0  # what a send without a timeout of its own has, or twice the interval
EVENTS_WAITING_MAX: Final = 10_000  # for listeners that are slow
PING_REFUSALS_DEFAULT: Final = 3  # in a row, until the entity fails back
PING_REFUSALS_MAX: Final = 1_000_000
PAIRING_PAUSE_S_MIN: Final = 1.0  # between two searches for the backlog queues
PAIRING_PAUSE_S_MAX: Final = 30.0
HOLD_PAUSE_S_MIN: Final = 0.1  # between two attempts of a send that is held
HOLD_PAUSE_S_MAX: Final = 2.0
RESTORED_BYTES_MAX: Final = 128 * 1024 * 1024  # what a packed message may grow to
SESSION_CHECK_S_MIN: Final = 1.0  # between two looks whether a session's part of a backlog queue has drained
PRIMARY_NAME_CHARS_MAX: Final = 200
ACQUIRE_BYTES_MAX: Final = 4 * 1024**2
SESSION_GRACE_MS: Final = 500

# --- syphon -----------------------------------------------------------------------------------------------------------
SYPHON_RECEIVE_S: Final = 900.0  # one long receive: four an hour for each queue while nothing is diverted
SYPHON_BATCH_MESSAGES: Final = 250  # asked for at once, and sent at once to one destination
SYPHON_BATCH_BYTES: Final = 2 * 1024 * 1024
SYPHON_HELD_MESSAGES_MAX: Final = 4_000  # received and not settled, of all queues together
SYPHON_HELD_BYTES_MAX: Final = 64 * 1024 * 1024
SYPHON_STALLED_MESSAGES_MAX: Final = 20  # kept to try a destination that fails; the others of it are set aside
SYPHON_ASIDE_MESSAGES_MAX: Final = 1_500  # locked on one link and not worked at; beyond it the link is opened anew
SYPHON_WINDOW: Final = 1_000
SYPHON_PAUSE_MS_MIN: Final = 500
SYPHON_PAUSE_MS_MAX: Final = 60_000
SYPHON_SLOW_S: Final = 2.0  # a send that takes longer holds up its own destination only
SYPHON_SEND_TIMEOUT_S: Final = 30.0
SYPHON_CONNECT_TIMEOUT_MS: Final = 15_000
SYPHON_STOP_S: Final = 5.0  # for sends under way when it is stopped
SYPHON_LANE_IDLE_S: Final = 600.0  # a destination nothing is sent to for that long loses its link
SYPHON_ROUND_S: Final = 20.0  # how long the tasks of one round on Spark receive
SYPHON_ROUND_S_MAX: Final = 3_600.0
SYPHON_ROUND_MESSAGES: Final = 50_000  # what one slot settles in a round
SYPHON_ROUND_FAILURES_MAX: Final = 3  # rounds that failed, one after the other, before the job gives up
SYPHON_WATCH_MESSAGES: Final = 1_000  # what the driver moves by itself before it starts a round
SYPHON_SLOTS_MAX: Final = 32  # tasks on one backlog queue at once
SYPHON_FAILING_TOLD_MAX: Final = 1_000  # destinations that fail and are told to the next round
BACKLOG_LOOK_S: Final = 60.0  # how often whoever runs a syphon writes down what lies in the backlog
BACKLOG_LOOK_TIMEOUT_S: Final = 15.0
PAIR_CLOSE_S: Final = 5.0  # after one namespace of a pair is gone, the other has this long to be closed

# --- plan and report --------------------------------------------------------------------------------------------------
PLAN_COUNT_MAX: Final = 1_000_000  # of clients, senders, entities, queues
PLAN_RATE_MAX: Final = 1e9  # messages a second
PLAN_OUTAGE_S_MAX: Final = 30 * 86_400
PLAN_EXACT_STEPS_MAX: Final = 3_000_000  # of the exact recurrence, a tenth of a second; beyond it is approximated
PLAN_TRIALS_MAX: Final = 100_000_000
PLAN_ENVELOPE_BYTES: Final = 256  # what the rewrite for the backlog adds to a message, at most, with a path of 150
SYPHON_DRAIN_RATE: Final = 10_400.0  # messages a second: the slowest of the measured drains (docs/syphon.md)
REPORT_POINTS_MAX: Final = 240  # on a time axis
REPORT_ENTITIES: Final = 12  # shown by name; the rest is summed
REPORT_ENTITIES_MAX: Final = 200
REPORT_FAILOVERS: Final = 40  # shown one by one, those that diverted most; the rest is summed
REPORT_NAME_CHARS: Final = 60  # of a name in a chart or a table's cell

# --- Spark: the source and the sink -----------------------------------------------------------------------------------
BLOCKING_ATTEMPTS_MAX: Final = 8  # about a minute of pauses, then the caller hears of it
SPARK_BATCH_ROWS: Final = 1_000  # in one Arrow batch
SPARK_BATCH_BYTES: Final = 64 * 1024 * 1024  # of bodies in one Arrow batch, or one message
SPARK_PARTITION_MESSAGES_MIN: Final = 1_000  # fewer are not worth a task of their own
SPARK_PARTITIONS_MAX: Final = 10_000
SPARK_BROWSE_MESSAGES_DEFAULT: Final = 100_000  # in one micro-batch
SPARK_CLAIM_MESSAGES_DEFAULT: Final = 10_000  # claimed one by one, by the driver alone
SPARK_TRIGGER_MESSAGES_MAX: Final = 100_000_000
SPARK_WAIT_S_DEFAULT: Final = 10.0
SPARK_DELAY_S_DEFAULT: Final = 900.0  # that a batch of fewer than minMessagesPerTrigger is held back
SPARK_WAIT_S_MIN: Final = 0.1
SPARK_WAIT_S_MAX: Final = 3_600.0
SPARK_CLAIM_NAME_CHARS_MAX: Final = 64
SPARK_JOB_ID_CHARS_MAX: Final = 64  # with partition and row it is a message id
SPARK_SEND_MESSAGES_DEFAULT: Final = 500  # in one delivery of the sink
SPARK_ATTEMPTS_MAX: Final = 5  # of one delivery of the sink, before its task fails and is tried as a whole
SPARK_PARCELS_WAITING_MAX: Final = 8  # deliveries of one task without an outcome
SPARK_REFUSED_ROWS_MAX: Final = 10_000  # that one task hands to the driver, for a table
SPARK_REFUSED_BYTES_MAX: Final = 64 * 1024 * 1024
