/* What a flood costs without any of our code: datagrams to random content addresses, as fast as they go.
 *
 *     flood send PORT COUNT BATCH SEGMENTS     BATCH 1: a call for each; more: sendmmsg. SEGMENTS > 1: so many datagrams
 *                                              of one address in one piece (UDP GSO), which content does not allow;
 *                                              0: whole frames by a packet socket, past UDP, IPv6 and routes
 *     flood receive PORT COUNT BATCH GRO       until all have come, or nothing for half a second
 *
 * Prints packets, seconds, and seconds of processor. Compiled when the benchmark runs, and called by `_flood_worker`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define SIZE 100
#define MOST 64

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static double used(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

#define HEADS (14 + 40 + 8)

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

int flood(int argc, char **argv)
{
	static char data[MOST][65536];
	static struct mmsghdr messages[MOST];
	static struct iovec pieces[MOST];
	static struct sockaddr_in6 names[MOST];
	if (argc != 6)
		return 2;
	int sending = !strcmp(argv[1], "send");
	long count = atol(argv[3]), done = 0;
	int batch = atoi(argv[4]), extra = atoi(argv[5]);
	int raw = sending && !extra, port = atoi(argv[2]), room = 1 << 26;
	int s = raw ? socket(AF_PACKET, SOCK_RAW, 0) : socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_ll device = { .sll_family = AF_PACKET, .sll_ifindex = if_nametoindex("eth0") };
	struct sockaddr_in6 own = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	if (batch > MOST || (!raw && bind(s, (struct sockaddr *)&own, sizeof own)))
		return 1;
	setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
	for (int i = 0; i < batch; i++) {
		pieces[i] = (struct iovec){ data[i], raw ? HEADS + SIZE : sending ? SIZE * extra : sizeof data[i] };
		names[i] = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(0x8000) };
		names[i].sin6_addr.s6_addr[0] = 0xFD;
		names[i].sin6_addr.s6_addr[1] = 0x0E;
		names[i].sin6_addr.s6_addr[3] = 1;
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &pieces[i], .msg_iovlen = 1 };
		if (sending) {
			messages[i].msg_hdr.msg_name = raw ? (void *)&device : &names[i];
			messages[i].msg_hdr.msg_namelen = raw ? sizeof device : sizeof names[i];
		}
	}
	if (sending && extra > 1) {
		int size = SIZE;
		if (setsockopt(s, SOL_UDP, UDP_SEGMENT, &size, sizeof size))
			return 1;
	}
	if (!sending) {
		struct timeval wait = { .tv_usec = 500000 };
		setsockopt(s, SOL_UDP, UDP_GRO, &extra, sizeof extra);
		setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
		puts("ready");
		fflush(stdout);
	}
	double begin = 0, last = 0, before = used();
	if (sending)
		begin = now();
	while (done < count) {
		int n;
		if (sending) {
			for (int i = 0; i < batch; i++)
				for (int j = 4; j < 16; j++)
					names[i].sin6_addr.s6_addr[j] = random();
			for (int i = 0; raw && i < batch; i++)
				frame((unsigned char *)data[i], port, &names[i].sin6_addr);
			n = batch == 1 ? sendto(s, data[0], SIZE * extra, 0, (void *)names, sizeof names[0]) > 0
				       : sendmmsg(s, messages, batch, 0);
			if (n <= 0)
				return 1;
			done += (long)n * (raw ? 1 : extra);
			last = now();
			continue;
		}
		n = recvmmsg(s, messages, batch, MSG_WAITFORONE, 0);
		if (n <= 0) {
			if (begin)
				break;
			continue;
		}
		if (!begin)
			begin = now();
		for (int i = 0; i < n; i++)
			done += messages[i].msg_len / SIZE;
		last = now();
	}
	printf("%ld %.6f %.6f\n", done, last - begin, used() - before);
	fflush(stdout);
	return 0;
}
