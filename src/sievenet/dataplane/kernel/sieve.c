/* Content switches: a program that the kernel runs on every packet that comes in by one of their ports.
 *
 *     packet ──▶ content? ──▶ admitted? ──▶ the flow that decides ──▶ its outputs, one after the other
 *                 │ no          │ no            │ none
 *                 the system's  dropped, counted (`reasons`)
 *
 * The 128 bits that flows match are category and code: 112 bits of the destination address, 15 of the UDP port, one of
 * the traffic class (`sievenet.dataplane.openflow.pipeline` draws it).  Every flow is a row of `flows`: what it matches,
 * where its packets go, what it has counted, 64 bytes together.  Ordinary flows, whose priority is the length of their
 * prefix, are found by a tree (`nodes`, see `prefixes.py`), four bits at each step.  All others (catch-alls above
 * everything, flows of one in-port, cells under a mask) are in rows of equal precedence (`rows`), tried from the highest
 * down, each with one look into `cells`.
 *
 * If none of these decides, the tables of the out ports do (plans of kind cells).  The program needs no table per port: a
 * cell's flow has a bit for each port that has the cell in its table.  It asks once for each mask in use (`masks`),
 * unites the bits of what it finds, and the packet leaves once by every port whose bit is set (`slots`).
 *
 * All switches of a network on one machine share the program: it is in the processor's cache when a packet comes to the
 * next one.  A device says whose it is (`owner`).  In the maps of chunks the switches take turns, so that what several of
 * them need is close together; in arrays each has its rows behind those of another, and hash tables are in a map by the
 * switches' numbers.
 *
 * `sieve` is the way of most packets: one event, an ordinary flow, one output.  What else there may be is in programs of
 * their own, in which it goes on: several outputs (`more`), several events (`each`), rows and masks (`odd`).
 *
 * A packet of several events (its UDP port has the highest bit 0) leaves by every port that one of them would leave by,
 * once: `each` and `odd` decide about every one of them and note what it wants in `pile`, `pour` and `drain` serve
 * outputs and slots, and `marks` has for each port the number of the last such packet that left by it.  So the ports of a
 * packet are the union of its events' ports, each by the table as it is when it is looked up.  Both maps are per core:
 * nothing else runs on a core until the program is done with a packet.
 *
 * Only structures that the kernel promises to keep are used, so that one object serves all kernels.  Every table is a
 * map that user space changes while packets pass, word by word.  What a word names (a flow, a node, a version of `rows`)
 * was whole before, and is used for something else only when no program runs any more that may have read it.  `cells`
 * is a hash table of the kernel, which gives the memory of an entry to the next one at once: so what is found there is
 * compared with the flow that it names.
 *
 * Build: scripts/build-kernel-switch
 */
#include <linux/bpf.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS static inline __attribute__((always_inline))
/* What the compiler is to put out of the way: the way of most packets is short, and in one piece of memory. */
#define rare(x) __builtin_expect(!!(x), 0)
#define swap16(x) __builtin_bswap16(x)
#define swap64(x) __builtin_bswap64(x)

#define OK 0    /* TC_ACT_OK: the system's own business */
#define SHOT 2  /* TC_ACT_SHOT */

#define CLIENTS 1000    /* port numbers from here on are clients, which share the port of their host */
#define PORTS 32768
#define DEVICES 16384   /* rows for devices, and how many of them may be asked for one */
#define TRIES 4
#define CHUNK 4096      /* flows and nodes come in chunks, as many as are needed */
#define OUTPUTS 65536
#define VERSIONS 64     /* of rows and masks */
#define REASONS 8
#define NUMBER(owner) ((owner) & 0xFFFF)
#define SWITCHES(owner) ((owner) >> 16)
#define DEPTH 29        /* nodes on the way to a flow */
#define CHILD 0x80000000 /* a slot names a node, not a flow */
#define HEAD 0x40000000 /* and that node's path and flow matter */
#define ONLY 0x80000000 /* a range is one output, and not where it is */
#define ROWS 32
#define SLOTS 128       /* out ports with tables of cells */
#define STEPS 64        /* outputs served before the program calls itself again, at most 32 times */
#define TOGETHER 16     /* events in one packet */
#define FEW 2           /* of them at a time where there are rows or masks */
#define MANY 1430       /* as STEPS, for these: 23 times as many are more than TOGETHER flows can have outputs */
/* Where things are in a packet: hop limit, source, category and code, what is behind the headers, events in it, the first of them; and in an event: its
 * code, the encoded event. */
#define HOPS 21
#define FROM 22
#define CONTENT 40
#define HEADERS 62
#define EVENTS 66
#define FIRST 86
#define CODE 6
#define BODY 54

enum reason { MALFORMED, UNADMITTED, UNMATCHED, EXPIRED, UNSENT, UNADVERTISED };
enum part { MORE, EACH, ODD, POUR, DRAIN };

struct count { u64 packets; u64 bytes; };
/* A node of the tree tests four bits.  A slot is 0, a flow, or CHILD, where it tests (5 bits) and which node it is (24).
 * `path`: all bits before those that it tests.  `flow`: the longest one that ends in the slot that leads here. */
struct node { u32 slots[16]; u64 path[2]; u32 flow; u32 unused[11]; };
struct cell { u32 row; u32 in_port; u64 bits[2]; };
/* `range`: where in `outputs` there are how many (upper half), or ONLY and the output.  `row`, `in_port`: those of its cell.
 * `ones`: bits of code that it matches.  A cell of the ports' tables has a bit for each port instead. */
struct flow {
	u64 bits[2], mask[2];
	union {
		struct { u64 range; u32 row; u16 in_port; u16 ones; };
		u64 slots[2];
	};
	struct count counted;
};
struct row { u64 mask[2]; u32 priority; u32 in_port; u32 number; u16 width; u16 ones; };
struct rows { struct row row[ROWS]; };
struct mask { u64 bits[2]; u32 number; u32 unused; };
struct masks { struct mask mask[ROWS]; };
/* Which versions of `rows` and `masks` are in force; 0: there are none. */
struct state { u32 rows; u32 masks; };
/* `way`: 0 nobody is there, 1 to the device, 2 straight to the other end of a virtual link.
 * `checked`: whether a client may publish only in the categories that `permits` has, by number and category.
 * `address`: where a client's packets come from, if that is known. */
struct port {
	u32 device; u16 way; u16 checked;
	struct count received, sent;
	u64 dropped;
	u64 address[2];
};
struct permit { u16 port; u16 category; };
/* `odd`: whether there are rows or masks.  `owner`: the switch's number, and how many there are (upper half). */
struct device { u32 index; u16 port; u8 host; u8 odd; u32 owner; u32 unused; };
/* What the events of one packet do together: the outputs of each, the slots of all, and how far that is done. */
struct pile {
	u32 first[TOGETHER];
	u32 count[TOGETHER];
	u64 slots[2];
	u64 number; /* of this packet, among those of its core */
	u64 packets; /* or events */
	u64 last; /* the outputs of the event before */
	u32 at; /* the event whose outputs are next */
	u32 in_port;
	u32 pending;
	u32 met; /* whether a flow decided about one of them */
	u32 found; /* the flow that decides about this one, and what would take precedence over it */
	u32 beaten;
};

/* Where each map is, is filled in by the loader, by its name. */
extern char nodes, flows, cells, state, rows, masks, slots, outputs, ports, devices, reasons, permits, self, pile, marks;

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const load)(const void *skb, u32 at, void *to, u32 length) = (void *)BPF_FUNC_skb_load_bytes;
static long (*const store)(void *skb, u32 at, const void *from, u32 length, u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*const l4_replace)(void *skb, u32 at, u64 from, u64 to, u64 flags) = (void *)BPF_FUNC_l4_csum_replace;
static long (*const pull)(void *skb, u32 length) = (void *)BPF_FUNC_skb_pull_data;
static long (*const clone_redirect)(void *skb, u32 device, u64 flags) = (void *)BPF_FUNC_clone_redirect;
static long (*const redirect)(u32 device, u64 flags) = (void *)BPF_FUNC_redirect;
static long (*const redirect_peer)(u32 device, u64 flags) = (void *)BPF_FUNC_redirect_peer;
static long (*const change_type)(void *skb, u32 type) = (void *)BPF_FUNC_skb_change_type;
static long (*const again)(void *skb, void *programs, u32 index) = (void *)BPF_FUNC_tail_call;

ALWAYS void add(struct count *count, u64 packets, u64 bytes)
{
	__sync_fetch_and_add(&count->packets, packets);
	__sync_fetch_and_add(&count->bytes, bytes);
}

ALWAYS int tell(u32 owner, u32 reason, u64 packets)
{
	u32 at = NUMBER(owner) * REASONS + reason;
	u64 *count = lookup(&reasons, &at);
	if (count)
		__sync_fetch_and_add(count, packets);
	return SHOT;
}

ALWAYS u64 packets_of(struct __sk_buff *skb)
{
	return skb->gso_segs ? skb->gso_segs : 1;
}

ALWAYS struct port *port_at(u32 owner, u32 number)
{
	u32 at = NUMBER(owner) * PORTS + number;
	return number && number < PORTS ? lookup(&ports, &at) : 0;
}

ALWAYS struct device *device_at(u32 index)
{
	u32 i;
	for (i = 0; i < TRIES; i++) {
		u32 at = (index + i) % DEVICES;
		struct device *device = lookup(&devices, &at);
		if (!device || device->index == index)
			return device;
	}
	return 0;
}

/* A row of a switch's `flows` or `nodes`. */
ALWAYS void *row_at(void *chunks, u32 owner, u32 at)
{
	u32 chunk = at / CHUNK * SWITCHES(owner) + NUMBER(owner), row = at % CHUNK;
	void *rows = lookup(chunks, &chunk);
	return rows ? lookup(rows, &row) : 0;
}

/* Let the packet, or a copy of it, leave by a port; `last` ends the program's work with it. */
ALWAYS int leave(struct __sk_buff *skb, u32 number, struct port *port, u64 packets, int last)
{
	u32 device = port->device, way = port->way;
	if (rare(number >= CLIENTS)) {
		u16 to = swap16((u16)number), from = 0;
		void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
		if (data + HEADERS > end)
			return SHOT;
		from = *(u16 *)(data + 56);
		if (from != to) {
			l4_replace(skb, 60, from, to, 2 | BPF_F_MARK_MANGLED_0);
			store(skb, 56, &to, 2, 0);
		}
	}
	add(&port->sent, packets, skb->len);
	if (!last) {
		if (clone_redirect(skb, device, 0))
			__sync_fetch_and_add(&port->dropped, packets);
		return OK;
	}
	if (way == 2) {
		if (skb->pkt_type)
			change_type(skb, 0);
		return redirect_peer(device, 0);
	}
	return redirect(device, 0);
}

/* The port that a packet is to leave by, unless it came from there, or nobody is there. */
ALWAYS struct port *way_out(u32 owner, u32 number, u32 in_port, u64 packets)
{
	struct port *port = number == in_port ? 0 : port_at(owner, number);
	if (port && !port->way) {
		__sync_fetch_and_add(&port->dropped, packets);
		return 0;
	}
	return port;
}

/* A packet is to leave by this port too; the one before it, `pending`, can have its copy now.  Returns the next pending. */
ALWAYS u32 push(struct __sk_buff *skb, u32 owner, u32 number, u32 in_port, u32 pending, u64 packets)
{
	if (!way_out(owner, number, in_port, packets))
		return pending;
	struct port *port = port_at(owner, pending);
	if (port)
		leave(skb, pending, port, packets, 0);
	return number;
}

/* The last port may have the packet itself. */
ALWAYS int last(struct __sk_buff *skb, u32 owner, u32 pending, u64 packets)
{
	struct port *port = port_at(owner, pending);
	return port ? leave(skb, pending, port, packets, 1) : SHOT;
}

ALWAYS u32 output(u32 owner, u32 at, u32 only)
{
	u32 where = NUMBER(owner) * OUTPUTS + at;
	u16 *number = only ? 0 : lookup(&outputs, &where);
	return only ? at : number ? *number : 0;
}

/* Should two switches ever disagree about the tree, a packet must not circle inside the kernel. */
ALWAYS int hop(struct __sk_buff *skb)
{
	u8 *p = (void *)(long)skb->data;
	if (p + HEADERS > (u8 *)(long)skb->data_end)
		return 0;
	p[HOPS]--;
	return 1;
}

/* Eight bytes of a packet: a processor may be able to read two at a time at most. */
ALWAYS u64 four(const u8 *p)
{
	const u16 *part = (const u16 *)p;
	return part[0] | (u64)part[1] << 16 | (u64)part[2] << 32 | (u64)part[3] << 48;
}

/* Category and code of a packet of one event. */
ALWAYS void read(const u8 *p, u64 *bits)
{
	u16 tail = (swap16(*(u16 *)(p + 56)) & 0x7FFF) << 1 | (p[15] >> 6 & 1);
	bits[0] = four(p + CONTENT);
	bits[1] = four(p + CONTENT + 6) >> 16 | (u64)swap16(tail) << 48;
}

ALWAYS int matches(const struct flow *flow, const u64 *bits)
{
	return (bits[0] & flow->mask[0]) == flow->bits[0] && (bits[1] & flow->mask[1]) == flow->bits[1];
}

/* The ordinary flow with the longest prefix, and its number. */
ALWAYS struct flow *longest(u32 owner, const u64 *bits, u32 *number)
{
	u64 high = swap64(bits[0]), low = swap64(bits[1]);
	u32 next = 3 << 24 | high >> 52, best = 0, i;
#pragma clang loop unroll(disable)
	for (i = 0; i < DEPTH; i++) {
		struct node *node = row_at(&nodes, owner, next & 0xFFFFFF);
		u32 step = next >> 24 & 31;
		if (!node)
			return 0;
		if (rare(next & HEAD)) {
			if (node->flow)
				best = node->flow;
			/* The bits that were passed over, if this is not the next step. */
			u64 one = swap64(node->path[0]) ^ high, other = swap64(node->path[1]) ^ low;
			if (step < 16 ? one >> (64 - 4 * step) : one | (step > 16 ? other >> (128 - 4 * step) : 0)) {
				next = 0;
				break;
			}
		}
		next = node->slots[(step < 16 ? high : low) >> (60 - 4 * (step & 15)) & 15];
		if (!(next & CHILD))
			break;
	}
	*number = next;
	if (next) {
		struct flow *flow = row_at(&flows, owner, next);
		if (flow && matches(flow, bits))
			return flow;
	}
	*number = best;
	return best ? row_at(&flows, owner, best) : 0;
}

/* The rest of a packet's outputs.  cb: in-port, range, pending. */
SEC("tc/more") int more(struct __sk_buff *skb)
{
	u32 in_port = skb->cb[0], first = skb->cb[1], rest = skb->cb[2] & ~ONLY, pending = skb->cb[3], owner = skb->cb[4];
	u64 packets = packets_of(skb);
	u32 only = skb->cb[2] & ONLY, step;
#pragma clang loop unroll(disable)
	for (step = 0; step < STEPS; step++) {
		if (!rest)
			break;
		rest--;
		pending = push(skb, owner, output(owner, first++, only), in_port, pending, packets);
	}
	if (rest) {
		skb->cb[1] = first;
		skb->cb[2] = rest;
		skb->cb[3] = pending;
		again(skb, &self, MORE);
		return tell(owner, UNSENT, packets);
	}
	return last(skb, owner, pending, packets);
}

/* The flow that `cells` has for some bits in a row, and its number. */
ALWAYS struct flow *in_row(u32 owner, u32 row, u32 in_port, const u64 *bits, const u64 *mask, u32 *number)
{
	struct cell cell = { .row = row, .in_port = in_port };
	cell.bits[0] = bits[0] & mask[0];
	cell.bits[1] = bits[1] & mask[1];
	u32 which = NUMBER(owner);
	void *own = lookup(&cells, &which);
	u32 *found = own ? lookup(own, &cell) : 0;
	if (!found)
		return 0;
	*number = *found;
	struct flow *flow = row_at(&flows, owner, *number);
	return flow && matches(flow, bits) ? flow : 0;
}

/* The flow of a row that takes precedence over the ordinary one, or that one, or none.  Its number is kept in memory: what
 * the kernel has to look at before it runs the program grows with all that it knows of it. */
ALWAYS struct flow *decide(u32 owner, struct pile *all, const struct state *now, const u64 *bits, u32 in_port)
{
	u32 version = now->rows, at = NUMBER(owner) * VERSIONS + version, number = 0, i;
	struct flow *flow = longest(owner, bits, &number);
	/* An ordinary flow is beaten by a higher priority, and at the same one by an in-port or more bits. */
	all->beaten = flow ? (flow->ones << 9 | flow->ones) + 1 : 0;
	all->found = flow ? number : 0;
	struct rows *table = version ? lookup(&rows, &at) : 0;
	if (table) {
#pragma clang loop unroll(disable)
		for (i = 0; i < ROWS; i++) {
			struct row *row = &table->row[i];
			if (!row->number || (row->priority << 9 | row->in_port << 8 | row->ones) < all->beaten)
				break;
			u32 port = row->in_port * in_port;
			flow = in_row(owner, row->number, port, bits, row->mask, &number);
			if (flow && flow->row == row->number && flow->in_port == port) {
				all->found = number;
				break;
			}
		}
	}
	number = all->found;
	return number ? row_at(&flows, owner, number) : 0;
}

/* Unite the slots of the out ports whose tables have a code with others. */
ALWAYS void unite(u32 owner, struct pile *all, const struct state *now, const u64 *bits, u64 packets, u64 bytes)
{
	u32 version = now->masks, at = NUMBER(owner) * VERSIONS + version, number, i;
	struct masks *table = version ? lookup(&masks, &at) : 0;
	if (!table)
		return;
#pragma clang loop unroll(disable)
	for (i = 0; i < ROWS; i++) {
		struct mask *mask = &table->mask[i];
		if (!mask->number)
			break;
		struct flow *flow = in_row(owner, mask->number, 0, bits, mask->bits, &number);
		if (!flow)
			continue;
		all->slots[0] |= flow->slots[0];
		all->slots[1] |= flow->slots[1];
		add(&flow->counted, packets, bytes);
	}
}

/* Whether a packet of several events has not left by a port yet; from now on it has. */
ALWAYS int fresh(u32 number, u64 generation)
{
	u64 *mark = lookup(&marks, &number);
	if (!mark || *mark == generation)
		return 0;
	*mark = generation;
	return 1;
}

/* Let a packet of several events leave by every port that one of them wants, once. */
SEC("tc/pour") int pour(struct __sk_buff *skb)
{
	u32 zero = 0, owner = skb->cb[4], step;
	struct pile *all = lookup(&pile, &zero);
	if (!all)
		return SHOT;
#pragma clang loop unroll(disable)
	for (step = 0; step < MANY; step++) {
		u32 at = all->at & (TOGETHER - 1);
		if (!(all->count[at] & ~ONLY)) {
			all->at = ++at;
			if (at >= TOGETHER)
				break;
			continue;
		}
		u32 number = output(owner, all->first[at]++, all->count[at] & ONLY);
		all->count[at]--;
		if (fresh(number, all->number))
			all->pending = push(skb, owner, number, all->in_port, all->pending, all->packets);
	}
	if (all->at < TOGETHER) {
		again(skb, &self, POUR);
		return tell(owner, UNSENT, all->packets);
	}
	if (all->slots[0] | all->slots[1]) {
		again(skb, &self, DRAIN);
		return tell(owner, UNSENT, all->packets);
	}
	return last(skb, owner, all->pending, all->packets);
}

/* The same for the slots of all events. */
SEC("tc/drain") int drain(struct __sk_buff *skb)
{
	u32 zero = 0, owner = skb->cb[4], slot;
	struct pile *all = lookup(&pile, &zero);
	if (!all)
		return SHOT;
	u32 in_port = all->in_port, pending = all->pending;
	u64 generation = all->number, packets = all->packets, low = all->slots[0], high = all->slots[1];
#pragma clang loop unroll(disable)
	for (slot = 0; slot < SLOTS; slot++) {
		if (!(low | high))
			break;
		u32 which = NUMBER(owner) * SLOTS + slot, set = low & 1;
		low = low >> 1 | high << 63;
		high >>= 1;
		if (!set)
			continue;
		u64 *number = lookup(&slots, &which);
		if (number && fresh(*number, generation))
			pending = push(skb, owner, *number, in_port, pending, packets);
	}
	return last(skb, owner, pending, packets);
}

/* Begin with a packet. */
ALWAYS void begin(struct pile *all, u32 in_port, u64 packets, u64 number)
{
	__builtin_memset(all, 0, sizeof *all);
	all->in_port = in_port;
	all->packets = packets;
	all->number = number;
}

/* One of its events is a flow's. */
ALWAYS void note(struct pile *all, u32 event, struct flow *flow, u64 packets, u64 bytes)
{
	u64 range = flow->range;
	/* Often the one before leaves by the same ports. */
	all->count[event] = range == all->last ? 0 : range >> 32;
	all->first[event] = range;
	all->last = range;
	all->met = 1;
	add(&flow->counted, packets, bytes);
}

/* It is known what all events want: let the packet leave. */
ALWAYS int serve(struct __sk_buff *skb, u32 owner, struct pile *all)
{
	if (!(all->met | all->slots[0] | all->slots[1]))
		return tell(owner, UNMATCHED, all->packets);
	if (!hop(skb))
		return SHOT;
	again(skb, &self, POUR);
	return tell(owner, UNSENT, all->packets);
}

/* How many bytes further the next event is; 0 if they are not all there. */
ALWAYS u32 stride_of(struct __sk_buff *skb, u32 events)
{
	u16 length;
	u32 stride = load(skb, FIRST, &length, 2) ? 0 : BODY + swap16(length);
	return FIRST + events * stride > skb->len ? 0 : stride;
}

/* A packet of several events, equally long: find out what each of them wants.  cb: in-port, events. */
SEC("tc/each") int each(struct __sk_buff *skb)
{
	u32 zero = 0, events = skb->cb[1], owner = skb->cb[4], stride = stride_of(skb, events), unused, i;
	struct pile *all = lookup(&pile, &zero);
	u64 *number = lookup(&marks, &zero), bits[2] = { 0, 0 };
	if (!all || !number || !stride || load(skb, CONTENT, bits, 2))
		return tell(owner, MALFORMED, events);
	begin(all, skb->cb[0], events, ++*number);
#pragma clang loop unroll(disable)
	for (i = 0; i < TOGETHER; i++) {
		if (i >= events || load(skb, FIRST + i * stride + CODE, (u8 *)bits + 2, 14))
			break;
		struct flow *flow = longest(owner, bits, &unused);
		if (flow)
			note(all, i, flow, 1, stride);
	}
	return serve(skb, owner, all);
}

/* Packets of one event or several where there are rows or masks, a few events at a time: what the kernel has to look at
 * before it runs a program grows with each.  cb: in-port, packets or events, events that are done. */
SEC("tc/odd") int odd(struct __sk_buff *skb)
{
	u32 zero = 0, in_port = skb->cb[0], events = 1, stride = 0, done = skb->cb[2], owner = skb->cb[4], i;
	u32 which = NUMBER(owner);
	u64 packets = skb->cb[1], bytes = skb->len, bits[2];
	u8 *p = (void *)(long)skb->data;
	struct pile *all = lookup(&pile, &zero);
	struct state *now = lookup(&state, &which);
	u64 *number = lookup(&marks, &zero);
	if (!all || !now || !number || p + HEADERS > (u8 *)(long)skb->data_end)
		return SHOT;
	read(p, bits);
	if (!(p[56] & 0x80)) {
		events = packets;
		bytes = stride = stride_of(skb, events);
		packets = 1;
		if (!stride)
			return tell(owner, MALFORMED, events);
	}
	if (!done)
		begin(all, in_port, skb->cb[1], ++*number);
#pragma clang loop unroll(disable)
	for (i = 0; i < FEW; i++) {
		u32 event = done + i & TOGETHER - 1;
		if (done + i >= events || (stride && load(skb, FIRST + event * stride + CODE, (u8 *)bits + 2, 14)))
			break;
		struct flow *flow = decide(owner, all, now, bits, in_port);
		if (flow)
			note(all, event, flow, packets, bytes);
		else
			unite(owner, all, now, bits, packets, bytes);
	}
	if (done + FEW >= events)
		return serve(skb, owner, all);
	skb->cb[2] = done + FEW;
	again(skb, &self, ODD);
	return tell(owner, UNSENT, events);
}

SEC("tc/sieve") int sieve(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	/* A frame with a VLAN's tag, which the kernel has taken off already, is of another network. */
	if (rare(skb->protocol != swap16(0x86DD) || skb->vlan_present))
		return OK;
	if (rare(data + HEADERS > end)) {
		if (pull(skb, HEADERS))
			return OK;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		if (data + HEADERS > end)
			return OK;
	}
	u8 *p = data;
	if (rare(*(u16 *)(p + 38) != swap16(0xFD0E)))
		return OK;
	u32 index = skb->ifindex;
	struct device *device = device_at(index);
	if (rare(!device))
		return OK;
	u32 owner = device->owner;
	u64 packets = packets_of(skb), bytes = skb->len;
	if (rare(p[20] != 17))
		return tell(owner, MALFORMED, packets);
	/* The highest bit of the UDP port says that there is one event, whose code is in the address. */
	int several = !(p[56] & 0x80);
	if (rare(several)) {
		u16 events;
		if (packets > 1 || load(skb, EVENTS, &events, 2))
			return tell(owner, MALFORMED, packets);
		packets = swap16(events);
		if (!packets || packets > TOGETHER)
			return tell(owner, MALFORMED, 1);
	}
	u32 number = device->port, source = swap16(*(u16 *)(p + 54));
	struct port *port = port_at(owner, number);
	if (port)
		add(&port->received, packets, bytes);
	if (rare(device->host)) {
		port = source >= CLIENTS ? port_at(owner, source) : 0;
		if (!port || !port->way || port->device != index)
			return tell(owner, UNADMITTED, packets);
		if (port->address[1] && (four(p + FROM) != port->address[0] || four(p + FROM + 8) != port->address[1]))
			return tell(owner, UNADMITTED, packets);
		if (port->checked) {
			struct permit permit = { .port = source, .category = swap16(*(u16 *)(p + CONTENT)) };
			u32 which = NUMBER(owner);
			void *own = lookup(&permits, &which);
			if (!own || !lookup(own, &permit))
				return tell(owner, UNADVERTISED, packets);
		}
		add(&port->received, packets, bytes);
		number = source;
	}
	if (rare(p[HOPS] <= 1))
		return tell(owner, EXPIRED, packets);
	if (rare(several | device->odd)) {
		skb->cb[0] = number;
		skb->cb[1] = packets;
		skb->cb[2] = 0;
		skb->cb[4] = owner;
		if (device->odd)
			again(skb, &self, ODD);
		else
			again(skb, &self, EACH);
		return tell(owner, UNSENT, packets);
	}
	u64 bits[2];
	u32 count;
	read(p, bits);
	p[HOPS]--;
	struct flow *flow = longest(owner, bits, &count);
	if (rare(!flow))
		return tell(owner, UNMATCHED, packets);
	add(&flow->counted, packets, bytes);
	u64 range = flow->range;
	u32 first = range;
	count = range >> 32;
	if (count & ONLY) {
		port = way_out(owner, first, number, packets);
		return port ? leave(skb, first, port, packets, 1) : SHOT;
	}
	skb->cb[0] = number;
	skb->cb[1] = first;
	skb->cb[2] = count;
	skb->cb[3] = 0;
	skb->cb[4] = owner;
	again(skb, &self, MORE);
	return tell(owner, UNSENT, packets);
}

char licence[] SEC("license") = "GPL";
/* Which source this was made from: a test compares. */
char made_from[] SEC("source") = SOURCE;
