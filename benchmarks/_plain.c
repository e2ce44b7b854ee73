/* Plain sockets at the two ends of a path: datagrams to random content addresses, without any of our code.
 *
 * Each datagram goes to an address of its own, and carries its number and when it was sent.  Compiled when the benchmark
 * runs, and called by `_plain_worker`.  Both functions return how many datagrams there were, or -1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#define SIZE 100 /* of a datagram: that of a small event */
#define MOST 64
#define HEADS (14 + 40 + 8)

struct head { unsigned long long number, sent; };

static unsigned long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void sleep_until(unsigned long long due)
{
	struct timespec t = { due / 1000000000, due % 1000000000 };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0) == EINTR)
		;
}

/* A frame from h1 to a content address, with all its headers. */
static void frame(unsigned char *p, int port, const struct in6_addr *to)
{
	static const unsigned char start[] = { 2, 0x53, 0x56, 0, 0, 1, 2, 0x53, 0x56, 0, 0, 1, 0x86, 0xDD, 0x60, 0, 0, 0,
					       0, 8 + SIZE, 17, 64, 0xFD, 0x0F, 0, 1 };
	memcpy(p, start, sizeof start);
	p[37] = 1;
	memcpy(p + 38, to, 16);
	unsigned short udp[4] = { htons(port), htons(0x8000), htons(8 + SIZE), 0 };
	memcpy(p + 54, udp, 8);
	unsigned sum = 8 + SIZE + 17;
	for (int i = 22; i < HEADS + SIZE; i += 2)
		sum += p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xFFFF) + (sum >> 16);
	sum = ~sum & 0xFFFF;
	p[60] = sum ? sum >> 8 : 0xFF;
	p[61] = sum ? sum : 0xFF;
}

/* Send at a pace (0: as fast as it goes), `batch` with a call, and say when that began and ended.
 * `segments` > 1: so many datagrams of one address in one piece (UDP GSO), which content does not allow; 0: whole frames
 * by a packet socket that is bound to a device, past UDP, IPv6 and routes. */
long plain_send(int s, int port, long count, double rate, int batch, int segments, unsigned long long seed,
		unsigned long long *times)
{
	static unsigned char data[MOST][65536];
	static struct mmsghdr messages[MOST];
	static struct iovec pieces[MOST];
	static struct sockaddr_in6 names[MOST];
	int raw = !segments, each = raw ? 1 : segments;
	long done = 0;
	if (batch > MOST || each * SIZE > (int)sizeof data[0])
		return -1;
	prctl(PR_SET_TIMERSLACK, 1);
	seed *= 0x9E3779B97F4A7C15;
	for (int i = 0; i < batch; i++) {
		pieces[i] = (struct iovec){ data[i], raw ? HEADS + SIZE : SIZE * each };
		names[i] = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(0x8000) };
		memcpy(&names[i].sin6_addr, "\xFD\x0E\0\1", 4);
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &pieces[i], .msg_iovlen = 1 };
		if (!raw) {
			messages[i].msg_hdr.msg_name = &names[i];
			messages[i].msg_hdr.msg_namelen = sizeof names[i];
		}
	}
	times[0] = now();
	while (done < count) {
		int want = (count - done + each - 1) / each < batch ? (count - done + each - 1) / each : batch;
		if (rate > 0)
			sleep_until(times[0] + (unsigned long long)(done / rate * 1e9));
		for (int i = 0; i < want; i++) {
			for (int j = 4; j < 16; j += 4) {
				/* Marsaglia's xorshift64. */
				seed ^= seed << 13;
				seed ^= seed >> 7;
				seed ^= seed << 17;
				memcpy(names[i].sin6_addr.s6_addr + j, &seed, 4);
			}
			struct head head = { done + i * each, now() };
			memcpy(data[i] + (raw ? HEADS : 0), &head, sizeof head);
			if (raw)
				frame(data[i], port, &names[i].sin6_addr);
		}
		int n = want == 1 ? sendmsg(s, &messages[0].msg_hdr, 0) > 0 : sendmmsg(s, messages, want, 0);
		if (n <= 0)
			return -1;
		done += (long)n * each;
	}
	times[1] = now();
	return done;
}

/* Take what comes until all is there, or nothing has come for `wait` seconds; say when the first and the last came, and
 * how long each was on its way.  `nap` > 0: as many as there are, once in so many seconds, so that nobody has to be woken
 * up for a packet; 0: each as it comes. */
long plain_receive(int s, long count, double wait, double nap, unsigned long long *times, unsigned long long *latencies)
{
	static unsigned char data[MOST][65536];
	static struct mmsghdr messages[MOST];
	static struct iovec pieces[MOST];
	struct timeval timeout = { (long)wait, (long)(wait * 1e6) % 1000000 };
	int batch = nap > 0 ? MOST : 1;
	long seen = 0;
	prctl(PR_SET_TIMERSLACK, 1);
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	for (int i = 0; i < batch; i++) {
		pieces[i] = (struct iovec){ data[i], sizeof data[i] };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &pieces[i], .msg_iovlen = 1 };
	}
	times[0] = 0;
	times[1] = now();
	while (seen < count) {
		int n;
		if (batch == 1) {
			ssize_t got = recv(s, data[0], sizeof data[0], 0);
			messages[0].msg_len = got;
			n = got >= (ssize_t)sizeof(struct head);
		} else {
			n = recvmmsg(s, messages, batch, MSG_DONTWAIT, 0);
		}
		unsigned long long at = now();
		if (n > 0) {
			for (int i = 0; i < n; i++) {
				struct head head;
				memcpy(&head, data[i], sizeof head);
				for (unsigned j = 0; j < messages[i].msg_len / SIZE && seen < count; j++)
					latencies[seen++] = at - head.sent;
			}
			if (!times[0])
				times[0] = at;
			times[1] = at;
		} else if (batch == 1 || at - times[1] > wait * 1e9) {
			break;
		}
		if (batch > 1 && n < batch)
			sleep_until(at + (unsigned long long)(nap * 1e9));
	}
	return seen;
}
