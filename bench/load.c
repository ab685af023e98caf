/* The load of `make bench-peers`: AMQP 1.0 in separate C code, so that no broker is measured with its own engine.
 *
 * It opens connections to one broker, sends, receives, or both, and prints its figures as one line of JSON. Each
 * connection either sends or receives and has a share of the queues, one link each. A send counts when the broker has
 * accepted it, a receive when the broker has confirmed the settlement.
 *
 *   send      keep `window` messages in flight on each connection
 *   receive   receive messages and settle them in ranges
 *   both      as many connections that send as connections that receive
 *   latency   one message in flight on each connection
 *   single    settle one by one: each when the previous one is confirmed
 *
 * cc -O2 -o load load.c -lssl -lcrypto      (-DNO_TLS without OpenSSL's headers)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifndef NO_TLS
#include <openssl/ssl.h>
#endif

typedef uint8_t u8;
typedef uint32_t u32;

enum { OPEN = 0x10, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE };
enum step { SASL_HEADER, SASL_OUTCOME, HEADER, OPENING, BEGINNING, ATTACHING, READY };

#define LINKS_MAX 128
#define READ_BYTES (256 * 1024)
#define INCOMING_WINDOW 0x7fffffff
/* Our maximum frame size; the peer's limit is respected as well. */
#define FRAME_BYTES_MAX (1024 * 1024)

struct link {
    int queue;      /* number of its queue */
    u32 credit;     /* sender: messages it may send; receiver: messages still to come */
    u32 count;      /* deliveries so far */
};

struct bytes {
    u8 *data;
    size_t start, end, size;
};

struct connection {
    int fd;
    bool sends;
    enum step step;
    struct bytes in, out;
    struct link links[LINKS_MAX];
    int link_count, attached, turn;
    int local[256];         /* our handle by the peer's */
    u32 frame_max;          /* the peer's */
    u32 next_outgoing, remote_window, next_incoming;
    u32 next_delivery, in_flight;
    double *sent_at;        /* by delivery id modulo `ring`; 0 once it is accepted */
    /* Deliveries received in this pass, to be settled in one frame. */
    u32 first, last;
    bool range;
    /* `single`: deliveries that wait for the previous one. */
    u32 *held;
    size_t held_start, held_end;
    bool more;              /* the last transfer was not the end of its delivery */
    u32 partial_id;
#ifndef NO_TLS
    SSL *tls;
#endif
};

/* Whether the broker confirms settlements. If not, they are sent settled, and count when written. */
static int confirms = 1;
static int port, connections = 1, queues = 1, body_bytes = 1024, window = 500, prefetch = 500;
static long count = 50000, first_number;
static const char *user = "", *password = "", *address = "", *phase = "both";
static bool use_tls, single;
static long sent, accepted, taken, confirmed, receive_goal, send_goal;
static double *waits;
static u32 ring;
static u8 *payload;
static size_t payload_bytes, id_at;

static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* --- bytes out ------------------------------------------------------------------------------------------------- */

static u8 *reserve(struct bytes *b, size_t more) {
    if (b->start == b->end) b->start = b->end = 0;
    if (b->end + more > b->size) {
        memmove(b->data, b->data + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
        if (b->end + more > b->size) {
            b->size = 2 * (b->end + more);
            b->data = realloc(b->data, b->size);
        }
    }
    return b->data + b->end;
}

static void put(struct connection *c, const void *data, size_t size) {
    memcpy(reserve(&c->out, size), data, size);
    c->out.end += size;
}

static void put32(u8 *at, u32 value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

/* One performative: its fields are appended to `body`, which starts with room for the frame and list headers. */
struct performative {
    u8 data[512];
    size_t end;
    int fields;
};

static void start(struct performative *p, u8 code) {
    u8 head[] = {0, 0, 0, 0, 2, 0, 0, 0, 0, 0x53, code, 0xc0, 0, 0};
    memcpy(p->data, head, sizeof head);
    p->end = sizeof head;
    p->fields = 0;
}

static void raw(struct performative *p, const void *data, size_t size) {
    if (p->end + size > sizeof p->data) fail("A frame of the load is too long.");
    memcpy(p->data + p->end, data, size);
    p->end += size;
    p->fields++;
}

static void null(struct performative *p) { raw(p, "\x40", 1); }
static void boolean(struct performative *p, bool value) { raw(p, value ? "\x41" : "\x42", 1); }
static void ubyte(struct performative *p, u8 value) { raw(p, (u8[]){0x50, value}, 2); }

static void number(struct performative *p, u32 value) {
    u8 field[5] = {0x70};
    put32(field + 1, value);
    raw(p, field, 5);
}

static void text(struct performative *p, u8 code, const void *data, size_t size) {
    u8 field[258] = {code, (u8)size};
    memcpy(field + 2, data, size);
    raw(p, field, size + 2);
}

static void string(struct performative *p, const char *value) { text(p, 0xa1, value, strlen(value)); }

/* A described list with one field: source or target with an address; `accepted` has no field. */
static void terminus(struct performative *p, u8 code, const char *where) {
    u8 field[300] = {0, 0x53, code, 0xc0, 0, 1, 0xa1};
    size_t size = strlen(where);
    field[4] = (u8)(size + 3);
    field[7] = (u8)size;
    memcpy(field + 8, where, size);
    raw(p, field, size + 8);
}

static void finish(struct connection *c, struct performative *p, size_t after) {
    /* A short list, as clients write it. */
    if (p->end - 13 > 255) fail("A frame of the load is too long.");
    put32(p->data, (u32)(p->end + after));
    p->data[12] = (u8)(p->end - 13);
    p->data[13] = (u8)p->fields;
    put(c, p->data, p->end);
}

static const char *queue_name(int number) {
    static char name[256];
    snprintf(name, sizeof name, queues > 1 ? "%s%d" : "%s", address, number);
    return name;
}

static void flow(struct connection *c, int handle, struct link *l) {
    struct performative p;
    start(&p, FLOW);
    number(&p, c->next_incoming);
    number(&p, INCOMING_WINDOW);
    number(&p, c->next_outgoing);
    number(&p, INCOMING_WINDOW);
    number(&p, (u32)handle);
    number(&p, l->count);
    number(&p, l->credit);
    finish(c, &p, 0);
}

static void dispose(struct connection *c, u32 first, u32 last) {
    struct performative p;
    start(&p, DISPOSITION);
    boolean(&p, true);
    number(&p, first);
    number(&p, last);
    boolean(&p, !confirms);
    raw(&p, "\x00\x53\x24\x45", 4);
    finish(c, &p, 0);
    if (!confirms) confirmed += last - first + 1;
}

static bool send_message(struct connection *c, int handle) {
    struct link *l = &c->links[handle];
    size_t at = 0;
    char id[25];
    if (c->remote_window < payload_bytes / c->frame_max + 1 || c->sent_at[c->next_delivery & (ring - 1)]) return false;
    snprintf(id, sizeof id, "%024ld", first_number + sent);
    memcpy(payload + id_at, id, 24);
    do {
        struct performative p;
        start(&p, TRANSFER);
        number(&p, (u32)handle);
        number(&p, c->next_delivery);
        u8 tag[4];
        put32(tag, c->next_delivery);
        text(&p, 0xa0, tag, 4);
        number(&p, 0);
        boolean(&p, false);
        size_t left = payload_bytes - at, room = c->frame_max - p.end - 1, step = left < room ? left : room;
        boolean(&p, step < left);
        finish(c, &p, step);
        put(c, payload + at, step);
        at += step;
        c->next_outgoing++;
        c->remote_window--;
    } while (at < payload_bytes);
    c->sent_at[c->next_delivery++ & (ring - 1)] = now_s();
    l->credit--;
    l->count++;
    c->in_flight++;
    sent++;
    return true;
}

/* --- bytes in -------------------------------------------------------------------------------------------------- */

/* Returns the position after one encoded value; stores it in `number` if it is a number. */
static const u8 *value(const u8 *at, const u8 *end, uint64_t *number) {
    if (at >= end) fail("A frame ends too early.");
    u8 code = *at++;
    if (code == 0) return value(value(at, end, number), end, number);
    size_t size = 0;
    uint64_t found = 0;
    switch (code >> 4) {
    case 4: found = code == 0x41; break;
    case 5: case 6: case 7: case 8: case 9: size = 1u << ((code >> 4) - 5); break;
    case 0xa: case 0xc: case 0xe: return at + 1 + at[0];
    case 0xb: case 0xd: case 0xf: return at + 4 + ((u32)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]);
    default: fail("Unknown type code 0x%02x.", code);
    }
    if (size <= 8)
        for (size_t i = 0; i < size; i++) found = found << 8 | at[i];
    if (number) *number = found;
    return at + size;
}

/* The numbers of the first fields of a list; `given` says which are not null. Returns where the list ends. */
static const u8 *fields(const u8 *at, const u8 *end, uint64_t *numbers, bool *given, int most) {
    int found = 0;
    const u8 *stop;
    memset(numbers, 0, sizeof *numbers * most);
    memset(given, 0, sizeof *given * most);
    if (*at == 0x45) return at + 1;
    if (*at == 0xc0) {
        stop = at + 2 + at[1];
        found = at[2];
        at += 3;
    } else if (*at == 0xd0) {
        stop = value(at, end, NULL);
        found = (int)((u32)at[5] << 24 | at[6] << 16 | at[7] << 8 | at[8]);
        at += 9;
    } else {
        fail("A performative is no list.");
        return NULL;
    }
    for (int i = 0; i < found && i < most; i++) {
        given[i] = *at != 0x40;
        at = value(at, stop, &numbers[i]);
    }
    return stop;
}

static void attach(struct connection *c) {
    for (int handle = 0; handle < c->link_count; handle++) {
        struct performative p;
        char name[64];
        const char *queue = queue_name(c->links[handle].queue);
        snprintf(name, sizeof name, "load-%d-%d-%d", (int)getpid(), c->fd, handle);
        start(&p, ATTACH);
        string(&p, name);
        number(&p, (u32)handle);
        boolean(&p, !c->sends);
        ubyte(&p, 0);
        ubyte(&p, 0);
        terminus(&p, 0x28, c->sends ? "load" : queue);
        terminus(&p, 0x29, c->sends ? queue : "load");
        null(&p);
        null(&p);
        if (c->sends) number(&p, 0);
        finish(c, &p, 0);
    }
}

static void settle(struct connection *c, u32 id) {
    if (taken >= receive_goal) return;
    taken++;
    if (single) {
        c->held[c->held_end++ & (ring - 1)] = id;
        if (c->held_end - c->held_start == 1) dispose(c, id, id);
    } else if (c->range && id == c->last + 1) {
        c->last = id;
    } else {
        if (c->range) dispose(c, c->first, c->last);
        c->range = true;
        c->first = c->last = id;
    }
}

static void on_transfer(struct connection *c, const u8 *at, const u8 *end) {
    uint64_t f[6];
    bool given[6];
    fields(at, end, f, given, 6);
    c->next_incoming++;
    if (!c->more) c->partial_id = (u32)f[1];
    c->more = f[5];
    if (c->more) return;
    int handle = c->local[f[0] & 255];
    struct link *l = &c->links[handle];
    l->count++;
    l->credit--;
    settle(c, c->partial_id);
    if (l->credit <= (u32)prefetch / 2) {
        l->credit = (u32)prefetch;
        flow(c, handle, l);
    }
}

static void on_disposition(struct connection *c, const u8 *at, const u8 *end) {
    uint64_t f[5];
    bool given[5];
    fields(at, end, f, given, 5);
    u32 first = (u32)f[1], last = given[2] ? (u32)f[2] : first;
    if (!f[3]) return;
    /* `fields` does not decode the state, so look for the descriptor of `accepted` (0x24). */
    if (c->sends) {
        double now = now_s();
        if (!memmem(at, (size_t)(end - at), "\x53\x24", 2)) fail("A message was not accepted.");
        /* RabbitMQ's ranges can overlap when several queues confirm: each delivery counts once. */
        for (u32 id = first; id != last + 1 && last - first < ring; id++) {
            double *at = &c->sent_at[id & (ring - 1)];
            if (*at == 0 || c->next_delivery - id > ring) continue;
            waits[accepted++] = now - *at;
            *at = 0;
            c->in_flight--;
        }
    } else {
        confirmed += last - first + 1;
        if (single) {
            c->held_start += last - first + 1;
            if (c->held_start < c->held_end) {
                u32 id = c->held[c->held_start & (ring - 1)];
                dispose(c, id, id);
            }
        }
    }
}

static void on_flow(struct connection *c, const u8 *at, const u8 *end) {
    uint64_t f[7];
    bool given[7];
    fields(at, end, f, given, 7);
    c->remote_window = (given[0] ? (u32)f[0] : 0) + (u32)f[1] - c->next_outgoing;
    if (given[4] && c->sends) {
        struct link *l = &c->links[c->local[f[4] & 255]];
        l->credit = (given[5] ? (u32)f[5] : 0) + (u32)f[6] - l->count;
    }
}

static void on_frame(struct connection *c, const u8 *at, const u8 *end) {
    struct performative p;
    uint64_t f[8], code;
    bool given[8];
    if (at == end) return;
    at = value(at + 1, end, &code);
    switch (code) {
    case TRANSFER: on_transfer(c, at, end); return;
    case DISPOSITION: on_disposition(c, at, end); return;
    case FLOW: on_flow(c, at, end); return;
    case 0x40: /* the mechanisms */
        start(&p, 0x41);
        p.data[5] = 1;
        text(&p, 0xa3, "PLAIN", 5);
        {
            u8 response[512];
            size_t a = strlen(user), b = strlen(password);
            response[0] = 0;
            memcpy(response + 1, user, a);
            response[1 + a] = 0;
            memcpy(response + 2 + a, password, b);
            text(&p, 0xa0, response, a + b + 2);
        }
        finish(c, &p, 0);
        c->step = SASL_OUTCOME;
        return;
    case 0x44:
        fields(at, end, f, given, 1);
        if (f[0]) fail("The broker refused the password.");
        put(c, "AMQP\0\1\0\0", 8);
        c->step = HEADER;
        return;
    case OPEN:
        fields(at, end, f, given, 4);
        c->frame_max = given[2] && f[2] < FRAME_BYTES_MAX ? (u32)f[2] : FRAME_BYTES_MAX;
        start(&p, BEGIN);
        null(&p);
        number(&p, 0);
        number(&p, INCOMING_WINDOW);
        number(&p, INCOMING_WINDOW);
        number(&p, LINKS_MAX);
        finish(c, &p, 0);
        c->step = BEGINNING;
        return;
    case BEGIN:
        fields(at, end, f, given, 3);
        c->next_incoming = (u32)f[1];
        c->remote_window = (u32)f[2];
        attach(c);
        c->step = ATTACHING;
        return;
    case ATTACH: {
        /* Each side has its own handles; the name ends with ours. */
        fields(at, end, f, given, 2);
        const u8 *name = at + 5;
        if (at[3] != 0xa1 || f[1] >= 256) fail("An attach cannot be read.");
        const char *dash = memrchr(name, '-', at[4]);
        c->local[f[1]] = dash ? atoi(dash + 1) : 0;
        if (++c->attached == c->link_count) c->step = READY;
        return;
    }
    case DETACH: case END: case CLOSE:
        fwrite(at, 1, (size_t)(end - at), stderr);
        fail("\nThe broker ended a link (0x%02x).", (int)code);
        return;
    default: fail("Unknown frame 0x%02x.", (int)code);
    }
}

static void parse(struct connection *c) {
    struct bytes *b = &c->in;
    while (b->end - b->start >= 8) {
        const u8 *at = b->data + b->start;
        if (memcmp(at, "AMQP", 4) == 0) {
            if (c->step == HEADER) {
                struct performative p;
                start(&p, OPEN);
                string(&p, "load");
                string(&p, "localhost");
                number(&p, FRAME_BYTES_MAX);
                finish(c, &p, 0);
                c->step = OPENING;
            }
            b->start += 8;
            continue;
        }
        size_t size = (size_t)((u32)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]);
        if (b->end - b->start < size) break;
        on_frame(c, at + at[4] * 4, at + size);
        b->start += size;
    }
}

/* --- sockets ---------------------------------------------------------------------------------------------------- */

static void write_out(struct connection *c) {
    struct bytes *b = &c->out;
    while (b->start < b->end) {
        ssize_t done;
#ifndef NO_TLS
        if (c->tls)
            done = SSL_write(c->tls, b->data + b->start, (int)(b->end - b->start > 16384 ? 16384 : b->end - b->start));
        else
#endif
            done = write(c->fd, b->data + b->start, b->end - b->start);
        if (done <= 0) return; /* full, or lost: the next read shows which */
        b->start += (size_t)done;
    }
}

static void read_in(struct connection *c) {
    for (;;) {
        u8 *room = reserve(&c->in, READ_BYTES);
        ssize_t done;
#ifndef NO_TLS
        if (c->tls) {
            done = SSL_read(c->tls, room, READ_BYTES);
            if (done <= 0) {
                int why = SSL_get_error(c->tls, (int)done);
                if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return;
            }
        } else
#endif
        {
            done = read(c->fd, room, READ_BYTES);
            if (done < 0 && errno == EAGAIN) return;
        }
        if (done <= 0) fail("The broker closed a connection.");
        c->in.end += (size_t)done;
        parse(c);
        if (done < READ_BYTES
#ifndef NO_TLS
            && !c->tls
#endif
        )
            return;
    }
}

static void open_connection(struct connection *c) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1;
    inet_pton(AF_INET, "127.0.0.1", &where.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&where, sizeof where)) fail("connect: %s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
#ifndef NO_TLS
    static SSL_CTX *context;
    if (use_tls) {
        if (!context) context = SSL_CTX_new(TLS_client_method());
        c->tls = SSL_new(context);
        SSL_set_mode(c->tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_set_fd(c->tls, c->fd);
        if (SSL_connect(c->tls) != 1) fail("TLS handshake failed.");
    }
#else
    if (use_tls) fail("Built without TLS.");
#endif
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->sent_at = calloc(ring, sizeof(double));
    c->held = malloc(sizeof(u32) * ring);
    put(c, "AMQP\3\1\0\0", 8);
    write_out(c);
}

static void fill(struct connection *c) {
    int idle = 0;
    while (c->in_flight < (u32)window && sent < send_goal && idle < c->link_count) {
        int handle = c->turn++ % c->link_count;
        if (c->links[handle].credit > 0 && (int)c->links[handle].credit > 0 && send_message(c, handle))
            idle = 0;
        else
            idle++;
    }
}

static void make_payload(void) {
    static const u8 head[] = {0, 0x53, 0x70, 0xc0, 2, 1, 0x41, 0, 0x53, 0x73, 0xc0, 0x1b, 1, 0xa1, 0x18};
    payload_bytes = sizeof head + 24 + 8 + (size_t)body_bytes;
    payload = malloc(payload_bytes);
    memset(payload, 'x', payload_bytes);
    memcpy(payload, head, sizeof head);
    id_at = sizeof head;
    memcpy(payload + id_at + 24, "\0\x53\x75\xb0", 4);
    put32(payload + id_at + 28, (u32)body_bytes);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at_share(double share) {
    long at = (long)(accepted * share);
    return accepted ? 1000 * waits[at < accepted ? at : accepted - 1] : 0;
}

static void options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (!strcmp(name, "--tls")) {
            use_tls = true;
            continue;
        }
        if (i + 1 == argc) fail("%s needs a value.", name);
        const char *text = argv[++i];
        if (!strcmp(name, "--port")) port = atoi(text);
        else if (!strcmp(name, "--user")) user = text;
        else if (!strcmp(name, "--password")) password = text;
        else if (!strcmp(name, "--address")) address = text;
        else if (!strcmp(name, "--phase")) phase = text;
        else if (!strcmp(name, "--count")) count = atol(text);
        else if (!strcmp(name, "--first")) first_number = atol(text);
        else if (!strcmp(name, "--bytes")) body_bytes = atoi(text);
        else if (!strcmp(name, "--window")) window = atoi(text);
        else if (!strcmp(name, "--prefetch")) prefetch = atoi(text);
        else if (!strcmp(name, "--connections")) connections = atoi(text);
        else if (!strcmp(name, "--confirms")) confirms = atoi(text);
        else if (!strcmp(name, "--queues")) queues = atoi(text);
        else fail("Unknown option %s.", name);
    }
}

int main(int argc, char **argv) {
    options(argc, argv);
    bool latency = !strcmp(phase, "latency"), both = !strcmp(phase, "both");
    single = !strcmp(phase, "single");
    bool sends = latency || both || !strcmp(phase, "send"), receives = both || single || !strcmp(phase, "receive");
    if (!sends && !receives) fail("Unknown phase %s.", phase);
    if (latency) window = 1;
    /* Deliveries can be accepted out of order, so the ids in flight span more than the window. */
    for (ring = 1; ring < 16 * (u32)window || ring < (u32)prefetch + 1;) ring *= 2;
    send_goal = sends ? count : 0;
    receive_goal = receives ? count : 0;
    waits = malloc(sizeof(double) * (size_t)(count + 1));
    make_payload();
    int total = connections * (both ? 2 : 1);
    struct connection *all = calloc((size_t)total, sizeof *all);
    int epoll = epoll_create1(0);
    for (int i = 0; i < total; i++) {
        struct connection *c = &all[i];
        int number = i % connections;
        c->sends = sends && i < connections;
        /* Each queue has a connection, or each connection a queue. */
        for (int queue = number % queues; queue < queues && c->link_count < LINKS_MAX; queue += connections)
            c->links[c->link_count++].queue = queue;
        open_connection(c);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
    }
    double started = 0;
    while (accepted < send_goal || confirmed < receive_goal) {
        struct epoll_event events[64];
        int found = epoll_wait(epoll, events, 64, 60000);
        if (found == 0) fail("Nothing came for a minute: %ld accepted, %ld confirmed.", accepted, confirmed);
        for (int i = 0; i < found; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & ~EPOLLOUT) read_in(c);
            if (started && c->sends) fill(c);
            if (c->range) {
                dispose(c, c->first, c->last);
                c->range = false;
            }
            write_out(c);
        }
        if (started) continue;
        int ready = 0;
        for (int i = 0; i < total; i++) ready += all[i].step == READY && (!all[i].sends || all[i].links[0].credit > 0);
        if (ready < total) continue;
        started = now_s();
        for (int i = 0; i < total; i++) {
            struct connection *c = &all[i];
            for (int handle = 0; !c->sends && handle < c->link_count; handle++) {
                c->links[handle].credit = (u32)prefetch;
                flow(c, handle, &c->links[handle]);
            }
            if (c->sends) fill(c);
            write_out(c);
        }
    }
    double seconds = now_s() - started;
    for (int i = 0; i < total; i++) {
        struct performative p;
        start(&p, CLOSE);
        finish(&all[i], &p, 0);
        write_out(&all[i]);
        shutdown(all[i].fd, SHUT_WR);
    }
    qsort(waits, (size_t)accepted, sizeof *waits, ascending);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"phase\": \"%s\", \"messages\": %ld, \"seconds\": %.6f, \"load_cpu_s\": %.3f", phase, count, seconds,
           used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    if (sends)
        printf(", \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p9999_ms\": %.4f, \"max_ms\": %.4f", at_share(0.5),
               at_share(0.99), at_share(0.9999), at_share(1));
    printf("}\n");
    return 0;
}
