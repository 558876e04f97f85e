// The C half of package ibv: what libibverbs offers only as macros and inline functions, and what must not cost a cgo call a request.
#ifndef DMINDEX_VERBS_H
#define DMINDEX_VERBS_H

#include <infiniband/verbs.h>
#include <stdint.h>

// Bounds; verbs.MaxList and workRequest of the Go half agree with them.
enum { DM_MAX_LIST = 64, DM_RAW_SIZE = 96, DM_MAX_GIDS = 256 };

// dm_request is workRequest of encode.go.
struct dm_request {
	uint64_t local, remote, compare, swap;
	uint32_t length, lkey, rkey;
	uint8_t op, flags, zero[2];
	uint8_t wqe[DM_RAW_SIZE];
};

// dm_qp is a queue pair of a client, with its completion queue and the room in which lists are put together.
struct dm_qp {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_qp_ex *ex; // for lists with raw entries; NULL = the NIC takes none
	uint32_t inlined;     // bytes that a WRITE may carry with it
	uint64_t posted;      // lists; the last request of each carries its number
	uint32_t awaited;     // completions until the end of the list that is under way
	uint32_t received;    // bytes of the last answer to a call
	struct dm_request requests[DM_MAX_LIST];
	struct ibv_send_wr wr[DM_MAX_LIST];
	struct ibv_sge sge[DM_MAX_LIST];
};

// dm_port is what a port says of itself.
struct dm_port {
	uint8_t active, ethernet, mtu, reads_in, reads_out, atomics;
	uint16_t lid;
	uint32_t state, max_qps;
	uint64_t dm_bytes; // on-chip memory of the device
	char state_name[32];
};

// dm_endpoint is one side of a pair, and how the other reaches it.
struct dm_endpoint {
	uint32_t qpn, psn;
	uint8_t mtu, reads_in, reads_out, port, gid_index, global;
	uint16_t lid;
	uint8_t gid[16];
};

// All of these return 0, or an errno, unless it says otherwise.
int dm_query_port(struct ibv_context *ctx, int port, struct dm_port *out);
int dm_ports(struct ibv_context *ctx);
int dm_gids(struct ibv_context *ctx, int port, struct ibv_gid_entry *out); // how many, at most DM_MAX_GIDS; < 0 = -errno

// dm_qp_create makes a queue pair in the state INIT whose completions raise events with that handle. raw asks for one that takes raw entries.
// owner is in the asynchronous events that name the queue pair, here and below; 0 = nobody asks for them.
int dm_qp_create(struct ibv_pd *pd, struct ibv_comp_channel *channel, int port, uint64_t handle, uint64_t owner, int raw, struct dm_qp **out);
void dm_qp_destroy(struct dm_qp *q);
// dm_passive_create makes a queue pair in the state INIT that only answers; error says that an errno is in *err.
struct ibv_qp *dm_passive_create(struct ibv_pd *pd, struct ibv_cq *cq, int port, uint64_t owner, int *err);
void dm_passive_destroy(struct ibv_qp *qp); // by way of the state ERROR
int dm_connect(struct ibv_qp *qp, const struct dm_endpoint *mine, const struct dm_endpoint *theirs);

// dm_call posts a call: length bytes from at on go to the server, and the answer comes to where they were, with room bytes at most.
int dm_call(struct dm_qp *q, uint64_t at, uint32_t length, uint32_t room, uint32_t lkey);

// dm_done is a completion of a server's queue pair that takes calls: of a RECV, or of the SEND of an answer.
struct dm_done {
	uint64_t id;
	uint32_t status, bytes, room;
};
struct ibv_cq *dm_cq_create(struct ibv_context *ctx, struct ibv_comp_channel *channel, int entries, uint64_t handle);
int dm_cq_arm(struct ibv_cq *cq);
int dm_completion(struct ibv_cq *cq, struct dm_done *out); // 1 = there was one, 0 = none, < 0 = polling failed
int dm_receive(struct ibv_qp *qp, uint64_t at, uint32_t length, uint32_t lkey, uint64_t id);
int dm_answer(struct ibv_qp *qp, uint64_t at, uint32_t length, uint32_t lkey, uint64_t id);

int dm_post(struct dm_qp *q, int n);              // posts requests[0..n) as one list
enum { DM_NONE = -1, DM_FAULT = -2 };             // of dm_poll: the list is under way; polling itself failed
int dm_poll(struct dm_qp *q, int spins);          // else the status with which the list ended
int dm_arm(struct dm_qp *q);                      // the next completion raises an event
int dm_event(struct ibv_comp_channel *channel, uint64_t *handle); // EAGAIN = there is none

// dm_async is an asynchronous event: an enum ibv_event_type, and for a queue pair its owner.
struct dm_async {
	uint64_t owner;
	int kind;
};
int dm_async(struct ibv_context *ctx, struct dm_async *out); // takes and acknowledges one; EAGAIN = there is none

// dm_allow_gone lets what belongs to a device that is gone be given back as if the kernel had done so. Before any device is opened.
void dm_allow_gone(void);

struct ibv_mr *dm_register(struct ibv_pd *pd, void *at, uint64_t size, int remote, int *err);
struct ibv_dm *dm_memory(struct ibv_context *ctx, uint64_t size, int *err);
struct ibv_mr *dm_register_memory(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t size, int *err);
int dm_memory_in(struct ibv_dm *dm, const void *from, uint64_t size);
int dm_memory_out(struct ibv_dm *dm, void *to, uint64_t size);

int dm_raw_supported(struct ibv_context *ctx);

#endif
