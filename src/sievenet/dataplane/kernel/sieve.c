/* One content switch: a program that the kernel runs on every packet that comes in by one of its ports.
 *
 *     packet ──▶ content? ──▶ admitted? ──▶ the flow that decides ──▶ its outputs, one after the other
 *                 │ no          │ no            │ none
 *                 the system's  dropped, counted (`reasons`)
 *
 * The 128 bits that flows match are category and code: 112 bits of the destination address, 15 of the UDP port, one of
 * the traffic class (`sievenet.dataplane.openflow.pipeline` draws it).  Ordinary flows, whose priority is the length of
 * their prefix, are a prefix trie (`prefixes`).  All others (catch-alls above everything, flows of one in-port, cells
 * under a mask) are rows of equal precedence class, tried from the highest down, each with one look into `cells`.
 *
 * If none of these decides, the tables of the out ports do (plans of kind cells).  The program needs no table per port: a
 * cell's entry in `sets` has a bit for each port that has the cell in its table.  It asks once for each mask in use
 * (`masks`), unites the bits of what it finds, and the packet leaves once by every port whose bit is set (`slots`).
 *
 * A packet of several events (its UDP port has the highest bit 0) leaves by every port that one of them would leave by,
 * once: `each` decides about every one of them and notes what it wants in `pile`, `pour` and `drain` serve outputs and slots, and
 * `marks` has for each port the number of the last such packet that left by it.  So the ports of a packet are the union of
 * its events' ports, each by the table as it is when it is looked up.  Both maps are per core: nothing else runs on a core
 * until the program is done with a packet.
 *
 * Only structures that the kernel promises to keep are used, so that one object serves all kernels.  Every table is a
 * map that user space changes while packets pass; each change of one entry is atomic.
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
#define swap16(x) __builtin_bswap16(x)

#define OK 0    /* TC_ACT_OK: the system's own business */
#define SHOT 2  /* TC_ACT_SHOT */

#define CLIENTS 1000    /* port numbers from here on are clients, which share the port of their host */
#define PORTS 32768
#define ROWS 32
#define SLOTS 128       /* out ports with tables of cells; their bits travel in a packet's cb */
#define STEPS 64        /* outputs served before the program calls itself again, at most 32 times */
#define TOGETHER 16     /* events in one packet */
#define MANY 1100       /* as STEPS, for these: 32 times as many are more than TOGETHER flows can have outputs */
/* Where things are in a packet: events in it, the first of them; and in an event: its code, the encoded event. */
#define EVENTS 66
#define FIRST 86
#define CODE 6
#define BODY 54

enum reason { MALFORMED, UNADMITTED, UNMATCHED, EXPIRED, UNSENT, UNADVERTISED };

struct key { u32 length; u8 bits[16]; };
struct cell { u32 row; u32 in_port; u64 bits[2]; };
/* What a flow does: outputs[first .. first + count), counted in counts[counter]; `length` bits of code it matches. */
struct action { u32 first; u32 count; u32 counter; u32 length; };
struct row { u64 mask[2]; u32 priority; u32 in_port; u32 number; u16 width; u16 ones; };
struct mask { u64 bits[2]; u32 number; u32 width; };
/* The ports that want a cell, as bits of their slots. */
struct set { u64 slots[2]; u32 counter; u32 unused; };
struct count { u64 packets; u64 bytes; };
/* `way`: 0 nobody is there, 1 to the device, 2 straight to the other end of a virtual link.
 * `checked`: whether a client may publish only in the categories that `permits` has, by number and category.
 * `address`: where a client's packets come from, if that is known. */
struct port { u32 device; u32 way; struct count received; struct count sent; u64 dropped; u64 checked; u64 address[2]; };
struct permit { u16 port; u16 category; };
struct device { u32 port; u32 host; };
/* What the events of one packet do together: the outputs of each, the slots of all, and how far that is done. */
struct pile {
	u32 first[TOGETHER];
	u32 count[TOGETHER];
	u64 slots[2];
	u64 number; /* of this packet, among those of its core */
	u32 events;
	u32 at; /* the event whose outputs are next */
	u32 in_port;
	u32 pending;
	u64 last; /* the outputs of the event before */
	u32 met; /* whether a flow decided about one of them */
	u32 unused;
};

/* Where each map is, is filled in by the loader, by its name. */
extern char prefixes, cells, rows, masks, sets, slots, outputs, counts, ports, devices, reasons, permits, self, pile, marks;

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

ALWAYS int tell(u32 reason, u64 packets)
{
	u64 *count = lookup(&reasons, &reason);
	if (count)
		__sync_fetch_and_add(count, packets);
	return SHOT;
}

ALWAYS struct port *port_at(u32 number)
{
	return number ? lookup(&ports, &number) : 0;
}

/* Let the packet, or a copy of it, leave by a port; `last` ends the program's work with it. */
ALWAYS int leave(struct __sk_buff *skb, u32 number, u64 packets, int last)
{
	struct port *port = port_at(number);
	if (!port)
		return SHOT;
	u32 device = port->device, way = port->way;
	if (number >= CLIENTS) {
		u16 to = swap16((u16)number), from = 0;
		void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
		if (data + 62 > end)
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
		change_type(skb, 0);
		return redirect_peer(device, 0);
	}
	return redirect(device, 0);
}

/* A packet is to leave by this port too; the one before it, `pending`, can have its copy now.  Returns the next pending. */
ALWAYS u32 push(struct __sk_buff *skb, u32 number, u32 in_port, u32 pending, u64 packets)
{
	if (number == in_port)
		return pending;
	struct port *port = port_at(number);
	if (!port)
		return pending;
	if (!port->way) {
		__sync_fetch_and_add(&port->dropped, packets);
		return pending;
	}
	if (pending)
		leave(skb, pending, packets, 0);
	return number;
}

/* The rest of a packet's outputs.  cb: in-port, first, rest, pending. */
ALWAYS int send(struct __sk_buff *skb)
{
	u32 in_port = skb->cb[0], first = skb->cb[1], rest = skb->cb[2], pending = skb->cb[3];
	u64 packets = skb->gso_segs ? skb->gso_segs : 1;
	u32 step;
#pragma clang loop unroll(disable)
	for (step = 0; step < STEPS; step++) {
		if (!rest)
			break;
		u32 at = first++;
		rest--;
		u16 *output = lookup(&outputs, &at);
		if (!output)
			break;
		pending = push(skb, *output, in_port, pending, packets);
	}
	if (rest) {
		skb->cb[1] = first;
		skb->cb[2] = rest;
		skb->cb[3] = pending;
		again(skb, &self, 0);
		return tell(UNSENT, packets);
	}
	return pending ? leave(skb, pending, packets, 1) : SHOT;
}

/* The same for bits of slots, 64 at a time.  cb: in-port and pending, then the bits, of which the first half is next;
 * the highest bit of the in-port says that the second half has become it. */
ALWAYS int spread(struct __sk_buff *skb)
{
	u32 in_port = skb->cb[0] & 0x7FFF, pending = skb->cb[0] >> 16, base = skb->cb[0] & 0x8000 ? 64 : 0;
	u64 bits = skb->cb[1] | (u64)skb->cb[2] << 32;
	u64 packets = skb->gso_segs ? skb->gso_segs : 1;
	u32 step;
#pragma clang loop unroll(disable)
	for (step = 0; step < 64; step++) {
		if (!bits)
			break;
		u32 slot = base + step, set = bits & 1;
		bits >>= 1;
		if (!set)
			continue;
		u64 *number = lookup(&slots, &slot);
		if (number)
			pending = push(skb, *number, in_port, pending, packets);
	}
	if (!base && (skb->cb[3] | skb->cb[4])) {
		skb->cb[0] = in_port | 0x8000 | pending << 16;
		skb->cb[1] = skb->cb[3];
		skb->cb[2] = skb->cb[4];
		again(skb, &self, 1);
		return tell(UNSENT, packets);
	}
	return pending ? leave(skb, pending, packets, 1) : SHOT;
}

/* The flow that decides about a code, or none.  Without branches where arithmetic does: what the kernel has to look at
 * before it runs the program doubles with each. */
ALWAYS struct action *decide(const u64 *bits, u32 number)
{
	struct key key = { .length = 128 };
	__builtin_memcpy(key.bits, bits, 16);
	struct action *action = lookup(&prefixes, &key);
	/* An ordinary flow is beaten by a higher priority, and at the same one by an in-port or more bits. */
	u32 beaten = action ? (action->length << 9 | action->length) + 1 : 0, i;
#pragma clang loop unroll(disable)
	for (i = 0; i < ROWS; i++) {
		u32 at = i;
		struct row *row = lookup(&rows, &at);
		if (!row)
			break;
		if ((row->priority << 9 | row->in_port << 8 | row->ones) < beaten)
			break;
		struct cell cell = { .row = row->number, .in_port = row->in_port * number };
		cell.bits[0] = bits[0] & row->mask[0];
		cell.bits[1] = bits[1] & row->mask[1];
		struct action *special = lookup(&cells, &cell);
		if (special)
			return special;
	}
	return action;
}

/* Unite the slots of the out ports whose tables have a code with others. */
ALWAYS void unite(const u64 *bits, struct pile *all, u64 packets, u64 bytes)
{
	u32 i;
#pragma clang loop unroll(disable)
	for (i = 0; i < ROWS; i++) {
		u32 at = i;
		struct mask *mask = lookup(&masks, &at);
		if (!mask)
			break;
		struct cell cell = { .row = mask->number };
		cell.bits[0] = bits[0] & mask->bits[0];
		cell.bits[1] = bits[1] & mask->bits[1];
		struct set *set = lookup(&sets, &cell);
		if (!set)
			continue;
		all->slots[0] |= set->slots[0];
		all->slots[1] |= set->slots[1];
		u32 which = set->counter;
		struct count *count = lookup(&counts, &which);
		if (count)
			add(count, packets, bytes);
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
	u32 zero = 0, step;
	struct pile *all = lookup(&pile, &zero);
	if (!all)
		return SHOT;
#pragma clang loop unroll(disable)
	for (step = 0; step < MANY; step++) {
		u32 at = all->at & (TOGETHER - 1);
		if (!all->count[at]) {
			all->at = ++at;
			if (at >= TOGETHER)
				break;
			continue;
		}
		u32 here = all->first[at]++;
		all->count[at]--;
		u16 *output = lookup(&outputs, &here);
		if (output && fresh(*output, all->number))
			all->pending = push(skb, *output, all->in_port, all->pending, all->events);
	}
	if (all->at < TOGETHER) {
		again(skb, &self, 3);
		return tell(UNSENT, all->events);
	}
	if (all->slots[0] | all->slots[1]) {
		again(skb, &self, 4);
		return tell(UNSENT, all->events);
	}
	return all->pending ? leave(skb, all->pending, all->events, 1) : SHOT;
}

/* The same for the slots of all events. */
SEC("tc/drain") int drain(struct __sk_buff *skb)
{
	u32 zero = 0, slot;
	struct pile *all = lookup(&pile, &zero);
	if (!all)
		return SHOT;
	u32 in_port = all->in_port, pending = all->pending;
	u64 generation = all->number, packets = all->events, low = all->slots[0], high = all->slots[1];
#pragma clang loop unroll(disable)
	for (slot = 0; slot < SLOTS; slot++) {
		u32 which = slot, set = low & 1;
		low = low >> 1 | high << 63;
		high >>= 1;
		if (!set)
			continue;
		u64 *number = lookup(&slots, &which);
		if (number && fresh(*number, generation))
			pending = push(skb, *number, in_port, pending, packets);
	}
	return pending ? leave(skb, pending, packets, 1) : SHOT;
}

/* A packet of several events, equally long: find out what each of them wants.  cb: in-port, events. */
SEC("tc/each") int each(struct __sk_buff *skb)
{
	u32 zero = 0, number = skb->cb[0], events = skb->cb[1], i;
	struct pile *all = lookup(&pile, &zero);
	u64 *generation = lookup(&marks, &zero);
	u64 bits[2] = { 0, 0 };
	u16 length;
	u8 hops;
	if (!all || !generation || load(skb, FIRST, &length, 2) || load(skb, 21, &hops, 1))
		return tell(MALFORMED, events);
	u32 stride = BODY + swap16(length);
	if (FIRST + events * stride > skb->len || load(skb, 40, bits, 2))
		return tell(MALFORMED, events);
	all->slots[0] = all->slots[1] = 0;
	all->met = 0;
	all->last = 0;
	__builtin_memset(all->count, 0, sizeof all->count);
#pragma clang loop unroll(disable)
	for (i = 0; i < TOGETHER; i++) {
		if (i >= events || load(skb, FIRST + i * stride + CODE, (u8 *)bits + 2, 14))
			break;
		struct action *action = decide(bits, number);
		if (!action) {
			unite(bits, all, 1, stride);
			continue;
		}
		u32 counter = action->counter;
		/* Often the one before leaves by the same ports.  An empty set lies nowhere, and says 0. */
		u64 range = (u64)action->first << 32 | action->count;
		all->count[i] = range == all->last ? 0 : action->count;
		all->first[i] = action->first;
		all->last = range;
		all->met = 1;
		struct count *count = lookup(&counts, &counter);
		if (count)
			add(count, 1, stride);
	}
	if (!(all->met | all->slots[0] | all->slots[1]))
		return tell(UNMATCHED, events);
	hops--;
	store(skb, 21, &hops, 1, 0);
	all->number = ++*generation;
	all->events = events;
	all->at = 0;
	all->in_port = number;
	all->pending = 0;
	again(skb, &self, 3);
	return tell(UNSENT, events);
}

SEC("tc/wide") int wide(struct __sk_buff *skb)
{
	return spread(skb);
}

SEC("tc/more") int more(struct __sk_buff *skb)
{
	return send(skb);
}

SEC("tc/sieve") int sieve(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	/* A frame with a VLAN's tag, which the kernel has taken off already, is of another network. */
	if (skb->protocol != swap16(0x86DD) || skb->vlan_present)
		return OK;
	if (data + 62 > end) {
		if (pull(skb, 62))
			return OK;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		if (data + 62 > end)
			return OK;
	}
	u8 *p = data;
	if (p[38] != 0xFD || p[39] != 0x0E)
		return OK;
	u32 index = skb->ifindex;
	struct device *device = lookup(&devices, &index);
	if (!device)
		return OK;
	u64 packets = skb->gso_segs ? skb->gso_segs : 1, bytes = skb->len;
	if (p[20] != 17)
		return tell(MALFORMED, packets);
	/* The highest bit of the UDP port says that there is one event, whose code is in the address. */
	int several = !(p[56] & 0x80);
	if (several) {
		u16 events;
		if (packets > 1 || load(skb, EVENTS, &events, 2))
			return tell(MALFORMED, packets);
		packets = swap16(events);
		if (!packets || packets > TOGETHER)
			return tell(MALFORMED, 1);
	}
	u32 number = device->port, source = swap16(*(u16 *)(p + 54));
	struct port *port = port_at(number);
	if (port)
		add(&port->received, packets, bytes);
	if (device->host) {
		port = source >= CLIENTS ? port_at(source) : 0;
		if (!port || !port->way || port->device != index)
			return tell(UNADMITTED, packets);
		u64 from[2];
		__builtin_memcpy(from, p + 22, 16);
		if (port->address[1] && (from[0] != port->address[0] || from[1] != port->address[1]))
			return tell(UNADMITTED, packets);
		if (port->checked) {
			struct permit permit = { .port = source, .category = swap16(*(u16 *)(p + 40)) };
			if (!lookup(&permits, &permit))
				return tell(UNADVERTISED, packets);
		}
		add(&port->received, packets, bytes);
		number = source;
	}
	if (p[21] <= 1)
		return tell(EXPIRED, packets);
	if (several) {
		skb->cb[0] = number;
		skb->cb[1] = packets;
		again(skb, &self, 2);
		return tell(UNSENT, packets);
	}

	u64 bits[2];
	u8 *bytes_of = (u8 *)bits;
	u16 tail = (swap16(*(u16 *)(p + 56)) & 0x7FFF) << 1 | (p[15] >> 6 & 1);
	__builtin_memcpy(bits, p + 40, 14);
	bytes_of[14] = tail >> 8;
	bytes_of[15] = tail & 0xFF;
	u8 hops = p[21] - 1;
	struct action *action = decide(bits, number);
	if (!action) {
		u32 zero = 0;
		struct pile *all = lookup(&pile, &zero);
		if (!all)
			return SHOT;
		all->slots[0] = all->slots[1] = 0;
		unite(bits, all, packets, bytes);
		u64 low = all->slots[0], high = all->slots[1];
		if (!(low | high))
			return tell(UNMATCHED, packets);
		skb->cb[0] = number;
		skb->cb[1] = low;
		skb->cb[2] = low >> 32;
		skb->cb[3] = high;
		skb->cb[4] = high >> 32;
		store(skb, 21, &hops, 1, 0);
		return spread(skb);
	}
	u32 counter = action->counter;
	skb->cb[0] = number;
	skb->cb[1] = action->first;
	skb->cb[2] = action->count;
	skb->cb[3] = 0;
	struct count *count = lookup(&counts, &counter);
	if (count)
		add(count, packets, bytes);
	/* Should two switches ever disagree about the tree, a packet must not circle inside the kernel. */
	store(skb, 21, &hops, 1, 0);
	return send(skb);
}

char licence[] SEC("license") = "GPL";
/* Which source this was made from: a test compares. */
char made_from[] SEC("source") = SOURCE;
