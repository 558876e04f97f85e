//go:build ibv

#include "verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What the Go half believes.
_Static_assert(sizeof(struct dm_request) == 144 && offsetof(struct dm_request, length) == 32 &&
		offsetof(struct dm_request, op) == 44 && offsetof(struct dm_request, flags) == 45 && offsetof(struct dm_request, wqe) == 48,
	"workRequest of encode.go has another layout");
_Static_assert(IBV_WC_SUCCESS == 0 && IBV_WC_LOC_PROT_ERR == 4 && IBV_WC_WR_FLUSH_ERR == 5 && IBV_WC_LOC_ACCESS_ERR == 8 &&
		IBV_WC_REM_ACCESS_ERR == 10 && IBV_WC_RETRY_EXC_ERR == 12 && IBV_WC_REM_ABORT_ERR == 16 && IBV_WC_RESP_TIMEOUT_ERR == 20 &&
		IBV_WC_GENERAL_ERR == 21,
	"status.go counts otherwise");
_Static_assert(IBV_EVENT_CQ_ERR == 0 && IBV_EVENT_QP_FATAL == 1 && IBV_EVENT_QP_REQ_ERR == 2 && IBV_EVENT_QP_ACCESS_ERR == 3 &&
		IBV_EVENT_DEVICE_FATAL == 8 && IBV_EVENT_PORT_ERR == 10 && IBV_EVENT_SRQ_ERR == 14 && IBV_EVENT_GID_CHANGE == 18 &&
		IBV_EVENT_WQ_FATAL == 19,
	"event.go counts otherwise");
_Static_assert(IBV_GID_TYPE_ROCE_V1 == 1 && IBV_GID_TYPE_ROCE_V2 == 2, "choice.go counts otherwise");
_Static_assert(MLX5_OPCODE_ATOMIC_MASKED_CS == 0x14 && MLX5_OPCODE_ATOMIC_MASKED_FA == 0x15 && MLX5_WQE_CTRL_FENCE == 4 << 5 &&
		MLX5_WQE_CTRL_CQ_UPDATE == 2 << 2 && sizeof(struct mlx5_wqe_ctrl_seg) == 16 && offsetof(struct mlx5_wqe_ctrl_seg, qpn_ds) == 4 &&
		offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 11 && sizeof(struct mlx5_wqe_raddr_seg) == 16 &&
		offsetof(struct mlx5_wqe_raddr_seg, rkey) == 8 && sizeof(struct mlx5_wqe_data_seg) == 16 &&
		offsetof(struct mlx5_wqe_data_seg, lkey) == 4 && offsetof(struct mlx5_wqe_data_seg, addr) == 8,
	"mlx5.go has another layout");

enum { OP_READ, OP_WRITE, OP_CAS, OP_FAA, OP_MASKED_CAS, OP_MASKED_FAA }; // verbs.Op
enum { FLAG_FENCE = 1, FLAG_INLINE = 2, FLAG_SIGNALED = 4, FLAG_RAW = 8 };

enum {
	INLINE_WANTED = 128,
	// The requester sends a packet again after 4.096 us * 2^16, 0.27 s, and gives up after 8 times. Who lost the link for less does not
	// notice; who lost the server hears of it by the bootstrap connection, or after some seconds.
	ACK_TIMEOUT = 16,
	RETRIES = 7,
	HOP_LIMIT = 64,
};

int dm_ports(struct ibv_context *ctx) {
	struct ibv_device_attr a;
	return ibv_query_device(ctx, &a) ? 0 : a.phys_port_cnt;
}

static uint8_t bounded(int n) { return n < 1 ? 1 : n > 128 ? 128 : n; }

int dm_query_port(struct ibv_context *ctx, int port, struct dm_port *out) {
	struct ibv_port_attr p;
	struct ibv_device_attr_ex d;
	memset(&p, 0, sizeof p);
	int err = ibv_query_port(ctx, port, &p);
	if (!err) err = ibv_query_device_ex(ctx, NULL, &d);
	if (err) return err;
	memset(out, 0, sizeof *out);
	out->active = p.state == IBV_PORT_ACTIVE;
	out->ethernet = p.link_layer == IBV_LINK_LAYER_ETHERNET;
	out->mtu = p.active_mtu;
	out->lid = out->ethernet ? 0 : p.lid;
	out->reads_in = bounded(d.orig_attr.max_qp_rd_atom);
	out->reads_out = bounded(d.orig_attr.max_qp_init_rd_atom);
	out->atomics = d.orig_attr.atomic_cap != IBV_ATOMIC_NONE;
	out->max_qps = d.orig_attr.max_qp;
	out->dm_bytes = d.max_dm_size;
	snprintf(out->state_name, sizeof out->state_name, "%s", ibv_port_state_str(p.state));
	return 0;
}

int dm_gids(struct ibv_context *ctx, int port, struct ibv_gid_entry *out) {
	struct ibv_gid_entry all[DM_MAX_GIDS];
	ssize_t n = ibv_query_gid_table(ctx, all, DM_MAX_GIDS, 0);
	if (n < 0) return (int)n;
	int kept = 0;
	for (ssize_t i = 0; i < n; i++)
		if (all[i].port_num == (uint32_t)port) out[kept++] = all[i];
	return kept;
}

static int to_init(struct ibv_qp *qp, int port) {
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = port,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int dm_raw_supported(struct ibv_context *ctx) { return mlx5dv_is_supported(ctx->device); }

static struct ibv_qp *create_raw(struct ibv_pd *pd, struct ibv_cq *cq, uint64_t owner) {
	struct ibv_qp_init_attr_ex a = {
		.qp_context = (void *)(uintptr_t)owner,
		.send_cq = cq,
		.recv_cq = cq,
		// A raw entry takes two of the queue's blocks, an ordinary one at most as many.
		.cap = {.max_send_wr = 2 * DM_MAX_LIST, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE_WANTED},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct mlx5dv_qp_init_attr d = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE,
	};
	return mlx5dv_create_qp(pd->context, &a, &d);
}

int dm_qp_create(struct ibv_pd *pd, struct ibv_comp_channel *channel, int port, uint64_t handle, uint64_t owner, int raw, struct dm_qp **out) {
	struct dm_qp *q = calloc(1, sizeof *q);
	if (!q) return ENOMEM;
	int err = 0;
	// Only one completion of a list is asked for, but each of its requests makes one when they fail.
	q->cq = ibv_create_cq(pd->context, DM_MAX_LIST + 1, (void *)(uintptr_t)handle, channel, 0);
	if (!q->cq) goto fail;
	if (raw) {
		q->qp = create_raw(pd, q->cq, owner);
		if (!q->qp) goto fail;
		q->ex = ibv_qp_to_qp_ex(q->qp);
		q->inlined = INLINE_WANTED;
	} else {
		struct ibv_qp_init_attr a = {
			.qp_context = (void *)(uintptr_t)owner,
			.send_cq = q->cq,
			.recv_cq = q->cq,
			.cap = {.max_send_wr = DM_MAX_LIST, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE_WANTED},
			.qp_type = IBV_QPT_RC,
		};
		q->qp = ibv_create_qp(pd, &a);
		if (!q->qp) {
			a.cap.max_inline_data = 0;
			q->qp = ibv_create_qp(pd, &a);
		}
		if (!q->qp) goto fail;
		q->inlined = a.cap.max_inline_data;
	}
	if ((err = to_init(q->qp, port))) goto fail;
	for (int i = 0; i < DM_MAX_LIST; i++) {
		q->wr[i].sg_list = &q->sge[i];
		q->wr[i].num_sge = 1;
	}
	*out = q;
	return 0;
fail:
	if (!err) err = errno ? errno : EINVAL;
	dm_qp_destroy(q);
	return err;
}

void dm_qp_destroy(struct dm_qp *q) {
	if (q->qp) ibv_destroy_qp(q->qp);
	if (q->cq) ibv_destroy_cq(q->cq);
	free(q);
}

struct ibv_qp *dm_passive_create(struct ibv_pd *pd, struct ibv_cq *cq, int port, uint64_t owner, int *err) {
	struct ibv_qp_init_attr a = {
		.qp_context = (void *)(uintptr_t)owner,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &a);
	if (!qp) {
		*err = errno ? errno : EINVAL;
		return NULL;
	}
	if ((*err = to_init(qp, port))) {
		ibv_destroy_qp(qp);
		return NULL;
	}
	return qp;
}

void dm_passive_destroy(struct ibv_qp *qp) {
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	ibv_modify_qp(qp, &a, IBV_QP_STATE);
	ibv_destroy_qp(qp);
}

int dm_connect(struct ibv_qp *qp, const struct dm_endpoint *mine, const struct dm_endpoint *theirs) {
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mine->mtu < theirs->mtu ? mine->mtu : theirs->mtu,
		.dest_qp_num = theirs->qpn,
		.rq_psn = theirs->psn,
		.max_dest_rd_atomic = mine->reads_in,
		.min_rnr_timer = 12,
		.ah_attr = {.port_num = mine->port, .dlid = theirs->lid},
	};
	if (mine->global) {
		a.ah_attr.is_global = 1;
		memcpy(a.ah_attr.grh.dgid.raw, theirs->gid, 16);
		a.ah_attr.grh.sgid_index = mine->gid_index;
		a.ah_attr.grh.hop_limit = HOP_LIMIT;
	}
	int err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err) return err;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = ACK_TIMEOUT;
	a.retry_cnt = RETRIES;
	a.rnr_retry = RETRIES;
	a.sq_psn = mine->psn;
	a.max_rd_atomic = mine->reads_out < theirs->reads_in ? mine->reads_out : theirs->reads_in;
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC);
}

// post_mixed posts a list with raw entries in it.
static int post_mixed(struct dm_qp *q, int n) {
	struct mlx5dv_qp_ex *m = mlx5dv_qp_ex_from_ibv_qp_ex(q->ex);
	ibv_wr_start(q->ex);
	for (int i = 0; i < n; i++) {
		struct dm_request *r = &q->requests[i];
		q->ex->wr_id = q->posted;
		q->ex->wr_flags = (r->flags & FLAG_FENCE ? IBV_SEND_FENCE : 0) | (r->flags & FLAG_SIGNALED ? IBV_SEND_SIGNALED : 0);
		switch (r->op) {
		case OP_READ: ibv_wr_rdma_read(q->ex, r->rkey, r->remote); break;
		case OP_WRITE: ibv_wr_rdma_write(q->ex, r->rkey, r->remote); break;
		case OP_CAS: ibv_wr_atomic_cmp_swp(q->ex, r->rkey, r->remote, r->compare, r->swap); break;
		case OP_FAA: ibv_wr_atomic_fetch_add(q->ex, r->rkey, r->remote, r->compare); break;
		default: mlx5dv_wr_raw_wqe(m, r->wqe); continue;
		}
		if (r->flags & FLAG_INLINE)
			ibv_wr_set_inline_data(q->ex, (void *)(uintptr_t)r->local, r->length);
		else
			ibv_wr_set_sge(q->ex, r->lkey, r->local, r->length);
	}
	return ibv_wr_complete(q->ex);
}

int dm_post(struct dm_qp *q, int n) {
	q->posted++;
	q->awaited = 1;
	if (q->ex) return post_mixed(q, n);
	for (int i = 0; i < n; i++) {
		struct dm_request *r = &q->requests[i];
		struct ibv_send_wr *w = &q->wr[i];
		q->sge[i].addr = r->local;
		q->sge[i].length = r->length;
		q->sge[i].lkey = r->lkey;
		w->wr_id = q->posted;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->send_flags = (r->flags & FLAG_FENCE ? IBV_SEND_FENCE : 0) | (r->flags & FLAG_INLINE ? IBV_SEND_INLINE : 0) |
			(r->flags & FLAG_SIGNALED ? IBV_SEND_SIGNALED : 0);
		switch (r->op) {
		case OP_READ:
		case OP_WRITE:
			w->opcode = r->op == OP_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
			w->wr.rdma.remote_addr = r->remote;
			w->wr.rdma.rkey = r->rkey;
			break;
		default:
			w->opcode = r->op == OP_CAS ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
			w->wr.atomic.remote_addr = r->remote;
			w->wr.atomic.rkey = r->rkey;
			w->wr.atomic.compare_add = r->compare;
			w->wr.atomic.swap = r->swap;
		}
	}
	struct ibv_send_wr *bad;
	return ibv_post_send(q->qp, q->wr, &bad);
}

static int post_receive(struct ibv_qp *qp, uint64_t at, uint32_t length, uint32_t lkey, uint64_t id) {
	struct ibv_sge e = {.addr = at, .length = length, .lkey = lkey};
	struct ibv_recv_wr w = {.wr_id = id, .sg_list = &e, .num_sge = 1}, *bad;
	return ibv_post_recv(qp, &w, &bad);
}

int dm_call(struct dm_qp *q, uint64_t at, uint32_t length, uint32_t room, uint32_t lkey) {
	int err = post_receive(q->qp, at, room, lkey, ++q->posted);
	if (err) return err;
	q->awaited = 2;
	q->received = 0;
	if (q->ex) {
		ibv_wr_start(q->ex);
		q->ex->wr_id = q->posted;
		q->ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send_imm(q->ex, htonl(room));
		ibv_wr_set_sge(q->ex, lkey, at, length);
		return ibv_wr_complete(q->ex);
	}
	struct ibv_sge e = {.addr = at, .length = length, .lkey = lkey};
	struct ibv_send_wr w = {.wr_id = q->posted, .sg_list = &e, .num_sge = length > 0, .opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(room)}, *bad;
	return ibv_post_send(q->qp, &w, &bad);
}

struct ibv_cq *dm_cq_create(struct ibv_context *ctx, struct ibv_comp_channel *channel, int entries, uint64_t handle) {
	return ibv_create_cq(ctx, entries, (void *)(uintptr_t)handle, channel, 0);
}

int dm_cq_arm(struct ibv_cq *cq) { return ibv_req_notify_cq(cq, 0); }

int dm_completion(struct ibv_cq *cq, struct dm_done *out) {
	struct ibv_wc c;
	int n = ibv_poll_cq(cq, 1, &c);
	if (n <= 0) return n;
	out->id = c.wr_id;
	out->status = c.status;
	out->bytes = c.status == IBV_WC_SUCCESS ? c.byte_len : 0;
	out->room = c.status == IBV_WC_SUCCESS && c.opcode & IBV_WC_RECV && c.wc_flags & IBV_WC_WITH_IMM ? ntohl(c.imm_data) : 0;
	return 1;
}

int dm_receive(struct ibv_qp *qp, uint64_t at, uint32_t length, uint32_t lkey, uint64_t id) {
	return post_receive(qp, at, length, lkey, id);
}

int dm_answer(struct ibv_qp *qp, uint64_t at, uint32_t length, uint32_t lkey, uint64_t id) {
	struct ibv_sge e = {.addr = at, .length = length, .lkey = lkey};
	struct ibv_send_wr w = {.wr_id = id, .sg_list = &e, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	return ibv_post_send(qp, &w, &bad);
}

int dm_poll(struct dm_qp *q, int spins) {
	struct ibv_wc c;
	for (int i = 0; i < spins; i++) {
		int n = ibv_poll_cq(q->cq, 1, &c);
		if (n < 0) return DM_FAULT;
		if (n == 0) continue;
		if (c.status != IBV_WC_SUCCESS) return c.status; // of the first that failed
		if (c.opcode & IBV_WC_RECV) q->received = c.byte_len;
		if (--q->awaited == 0) return IBV_WC_SUCCESS; // of the list's last request; of a call and its answer, whichever came later
	}
	return DM_NONE;
}

int dm_arm(struct dm_qp *q) { return ibv_req_notify_cq(q->cq, 0); }

int dm_event(struct ibv_comp_channel *channel, uint64_t *handle) {
	struct ibv_cq *cq;
	void *context;
	errno = 0;
	if (ibv_get_cq_event(channel, &cq, &context)) return errno ? errno : EIO;
	*handle = (uintptr_t)context;
	ibv_ack_cq_events(cq, 1); // who destroys the queue waits for this
	return 0;
}

int dm_async(struct ibv_context *ctx, struct dm_async *out) {
	struct ibv_async_event e;
	errno = 0;
	if (ibv_get_async_event(ctx, &e)) return errno ? errno : EIO;
	out->kind = e.event_type;
	out->owner = 0;
	switch (e.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		out->owner = (uintptr_t)e.element.qp->qp_context; // which lives until this is acknowledged
		break;
	default: break;
	}
	ibv_ack_async_event(&e);
	return 0;
}

// The library reads this once, with its first list of devices.
void dm_allow_gone(void) { setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 0); }

static struct ibv_mr *registered(struct ibv_mr *mr, int *err) {
	*err = mr ? 0 : errno ? errno : EINVAL;
	return mr;
}

enum { REMOTE_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };

// No relaxed ordering: G1 and G3 need the order of PCIe writes.
struct ibv_mr *dm_register(struct ibv_pd *pd, void *at, uint64_t size, int remote, int *err) {
	return registered(ibv_reg_mr(pd, at, size, remote ? REMOTE_ACCESS : IBV_ACCESS_LOCAL_WRITE), err);
}

struct ibv_dm *dm_memory(struct ibv_context *ctx, uint64_t size, int *err) {
	struct ibv_alloc_dm_attr a = {.length = size, .log_align_req = 3};
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &a);
	*err = dm ? 0 : errno ? errno : EOPNOTSUPP;
	return dm;
}

// Addresses of device memory count from its start.
struct ibv_mr *dm_register_memory(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t size, int *err) {
	return registered(ibv_reg_dm_mr(pd, dm, 0, size, REMOTE_ACCESS | IBV_ACCESS_ZERO_BASED), err);
}

int dm_memory_in(struct ibv_dm *dm, const void *from, uint64_t size) { return ibv_memcpy_to_dm(dm, 0, from, size); }
int dm_memory_out(struct ibv_dm *dm, void *to, uint64_t size) { return ibv_memcpy_from_dm(to, dm, 0, size); }
