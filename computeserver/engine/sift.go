package engine

import rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"

// Operations on one key that arrive together take effect in their order, also if some of them are
// tried again. Another server may answer one and not an earlier one. Its client may have lost its
// leases, so what it read is withheld, while a later change was made. Or the connection was lost,
// and both are in doubt, but a read can be repeated. So the operations of a key that are tried
// again are a suffix of which none has been answered. Nothing is tried again of a key with a change
// in doubt: that change may still be under way there, and would take effect after its successors.

var (
	errOvertaken = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "it was not answered, and one of the same key behind it was: nothing was done"}
	errBehind    = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "nothing was done: of another one of the same key, sent together with it, it is not known whether it was done"}
)

// selectRetries selects from the operations part, which were sent to another server, those that are
// tried again, together with rest, which were not sent yet. It returns true if there are none, and
// rest may be sent.
func (r *remote) selectRetries(ops []*rpcv1.Operation, out []*rpcv1.Outcome, part, rest []int) bool {
	clean := true
	for _, i := range part {
		clean = clean && !repeatable(ops[i], out[i]) && !inDoubt(ops[i], out[i])
	}
	if clean {
		return true
	}
	doubtful, answered := map[string]bool{}, map[string]bool{}
	for _, i := range part {
		if inDoubt(ops[i], out[i]) {
			doubtful[string(ops[i].Key)] = true
		}
	}
	again := make([]bool, len(part))
	for n := len(part) - 1; n >= 0; n-- {
		i := part[n]
		key := string(ops[i].Key)
		switch {
		case repeatable(ops[i], out[i]) && doubtful[key]:
			out[i] = OutcomeOf(errBehind)
		case repeatable(ops[i], out[i]) && answered[key]:
			out[i] = OutcomeOf(errOvertaken)
		case repeatable(ops[i], out[i]):
			again[n] = true
		case out[i].Code.Meaning().Pair:
			answered[key] = true
		}
	}
	for n, i := range part {
		if again[n] {
			r.again = append(r.again, i)
		}
	}
	for _, i := range rest { // they must not overtake an operation that is tried again
		if doubtful[string(ops[i].Key)] {
			out[i] = OutcomeOf(errBehind)
			continue
		}
		out[i] = &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "an operation before this one was not done"}
		r.again = append(r.again, i)
	}
	return false
}

// repeatable reports whether an operation did nothing and may be tried again by itself.
func repeatable(op *rpcv1.Operation, o *rpcv1.Outcome) bool {
	switch o.Code {
	case rpcv1.Outcome_NOT_OWNER, rpcv1.Outcome_UNAVAILABLE:
		return true
	case rpcv1.Outcome_UNKNOWN:
		return !op.Kind.Traits().Changes
	}
	return false
}

// inDoubt reports whether an operation is a change of which it is unknown whether it was, or will
// be, made.
func inDoubt(op *rpcv1.Operation, o *rpcv1.Outcome) bool {
	return o.Code == rpcv1.Outcome_UNKNOWN && op.Kind.Traits().Changes
}
