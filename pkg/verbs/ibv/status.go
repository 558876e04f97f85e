package ibv

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// status is how a work request ended, with the values of libibverbs (enum ibv_wc_status).
type status int

// outcome is what a status is called and what it means to the owner of a queue pair.
type outcome struct {
	name string
	err  error
}

// outcomes by status. The C half (verbs.c) checks their number and order at compile time.
//
// The client checks every request before it posts it, against its arena and the sizes of the
// regions. So the errors of length, protection and access tell of a provider's mistake or of a
// region that is registered no more; they are named for what the NIC objected to.
var outcomes = [...]outcome{
	0: {"SUCCESS", nil},
	1: {"LOC_LEN_ERR", verbs.ErrMalformed},
	2: {"LOC_QP_OP_ERR", verbs.ErrMalformed},
	3: {"LOC_EEC_OP_ERR", verbs.ErrMalformed},
	4: {"LOC_PROT_ERR", verbs.ErrNotRegistered},
	// the queue pair went to the error state before the request's turn
	5:  {"WR_FLUSH_ERR", verbs.ErrDisconnected},
	6:  {"MW_BIND_ERR", verbs.ErrMalformed},
	7:  {"BAD_RESP_ERR", verbs.ErrDisconnected},
	8:  {"LOC_ACCESS_ERR", verbs.ErrNotRegistered},
	9:  {"REM_INV_REQ_ERR", verbs.ErrUnsupported},
	10: {"REM_ACCESS_ERR", verbs.ErrOutOfRange},
	11: {"REM_OP_ERR", verbs.ErrDisconnected},
	// the other side's NIC does not answer, or knows the queue pair no more
	12: {"RETRY_EXC_ERR", verbs.ErrDisconnected},
	13: {"RNR_RETRY_EXC_ERR", verbs.ErrDisconnected},
	14: {"LOC_RDD_VIOL_ERR", verbs.ErrMalformed},
	15: {"REM_INV_RD_REQ_ERR", verbs.ErrUnsupported},
	16: {"REM_ABORT_ERR", verbs.ErrDisconnected},
	17: {"INV_EECN_ERR", verbs.ErrMalformed},
	18: {"INV_EEC_STATE_ERR", verbs.ErrMalformed},
	19: {"FATAL_ERR", verbs.ErrDisconnected},
	20: {"RESP_TIMEOUT_ERR", verbs.ErrTimeout},
	21: {"GENERAL_ERR", verbs.ErrDisconnected},
}

// Err is nil for SUCCESS, else an error of package verbs that names the status.
func (s status) Err() error {
	if s < 0 || int(s) >= len(outcomes) {
		return fmt.Errorf("work completion status %d: %w", int(s), verbs.ErrDisconnected)
	}
	o := outcomes[s]
	if o.err == nil {
		return nil
	}
	return fmt.Errorf("work completion %s: %w", o.name, o.err)
}
