package computeserver

import (
	"bytes"
	"cmp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// errTypes ends the scan of a caller that would take a hash for a string.
var errTypes error = &engine.Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: "the range has hashes, which this program does not know: use one of the servers' version, or ask for keys only"}

// errSets ends the scan of a caller that does not know members.
var errSets error = &engine.Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: "the range has sorted sets, which this program does not know: use one of the servers' version, or ask for keys only"}

// scanStream is one scan under way.
type scanStream struct {
	r      *rpcServer
	req    *rpcv1.ScanRequest
	stream grpc.ServerStreamingServer[rpcv1.ScanReply]
	peer   bool // the caller is a server: it is shown what sorted sets consist of

	// Messages that wait until no session is held: whole ones, and the one that is filled. One of a
	// head alone stands for the set's members.
	full  []*rpcv1.ScanReply
	reply *rpcv1.ScanReply
	size  int
	left  uint64 // of req.Limit, of what was sent; 0 where that is 0

	visited uint64 // pairs, and the last key of them
	last    []byte
	untold  error // why the scan ends: a pair of a type that the caller does not know
	refused error // in the middle: the caller may not go on
}

// Scan streams pairs. Messages are sent between pieces, while no session is held.
func (r *rpcServer) Scan(req *rpcv1.ScanRequest, stream grpc.ServerStreamingServer[rpcv1.ScanReply]) error {
	defer r.begin()()
	if r.isDraining() {
		return status.Error(codes.Unavailable, "this server is shutting down; ask another one")
	}
	if err := r.checkIndex(req.Index); err != nil {
		return err
	}
	caller := callerOf(stream.Context())
	if err := caller.mayScan(req); err != nil {
		return err
	}
	began := r.core.Env.Now()
	s := &scanStream{r: r, req: req, stream: stream, peer: req.Forwarded && caller.isServer(), left: req.Limit}
	s.reply = s.begin()
	err := s.run()
	if cause := stream.Context().Err(); cause != nil {
		return status.FromContextError(cause).Err()
	}
	if s.refused != nil {
		return s.refused
	}
	t := count.Tally{Slot: rpcScanSlot}
	t.Count(count.OK)
	if err != nil {
		s.reply.Error = r.shownOutcome(caller.user(), engine.OutcomeOf(err))
		t = count.Tally{Slot: rpcScanSlot}
		t.Count(count.Error)
	}
	t.Publish(&r.metrics.rpc, r.core.Env.Now()-began)
	if s.trim(s.reply); len(s.reply.Pairs) > 0 || s.reply.Error != nil {
		return stream.Send(s.reply)
	}
	return nil
}

func (s *scanStream) begin() *rpcv1.ScanReply {
	return &rpcv1.ScanReply{MapGeneration: s.r.core.View.Generation()}
}

// messageBytes is about how many bytes a message has.
func (s *scanStream) messageBytes() int { return cmp.Or(s.r.core.ScanPiece, rpcScanMessage) }

// run delivers the range, but for what is left in reply.
func (s *scanStream) run() error {
	c, req := s.r.core, s.req
	of := engine.ScanRange{Start: req.Start, End: req.End, Reverse: req.Reverse, KeysOnly: req.KeysOnly, Inner: s.peer}
	for {
		s.visited, of.Limit = 0, s.left
		err := c.Scan(s.stream.Context(), of, req.Forwarded, s.visit, s.send)
		if err == nil {
			err = s.untold
		}
		if err == nil && len(s.full) > 0 {
			err = s.send()
		}
		sent := req.Limit - s.left + uint64(len(s.reply.Pairs))
		if err != nil || req.Limit == 0 || sent >= req.Limit || s.visited < of.Limit {
			return err
		}
		// Some were sets without members.
		more := true
		if req.Reverse {
			of.End, more = bytes.Clone(s.last), len(s.last) > 0
		} else {
			of.Start, more = c.Successor(nil, s.last)
		}
		s.full = append(s.full, s.reply)
		s.reply, s.size = s.begin(), 0
		if err := s.send(); err != nil || !more {
			return err
		}
	}
}

// visit takes a pair.
func (s *scanStream) visit(key, value []byte, is expiry.Mark) bool {
	s.visited, s.last = s.visited+1, append(s.last[:0], key...)
	pair := &rpcv1.Pair{Key: bytes.Clone(key), Deadline: is.Deadline, Type: rpcv1.Pair_Type(is.Type)}
	switch {
	case s.req.KeysOnly:
	case is.Type == expiry.SortedSet && !s.peer && !s.req.Sets:
		s.untold = errSets
		return false
	case is.Type != expiry.String && !s.req.Types:
		s.untold = errTypes
		return false
	case is.Type == expiry.SortedSet && !s.peer:
		s.full = append(s.full, s.reply, &rpcv1.ScanReply{Pairs: []*rpcv1.Pair{pair}})
		s.reply, s.size = s.begin(), 0
		return true
	default:
		pair.Value = append([]byte(nil), value...)
	}
	s.add(pair)
	return true
}

// add adds a pair to the messages.
func (s *scanStream) add(pair *rpcv1.Pair) {
	s.reply.Pairs = append(s.reply.Pairs, pair)
	if s.size += len(pair.Key) + len(pair.Value) + 8; s.size >= s.messageBytes() {
		s.full = append(s.full, s.reply)
		s.reply, s.size = s.begin(), 0
	}
}

// send sends the whole messages.
func (s *scanStream) send() error {
	if err := s.mayGoOn(); err != nil {
		return err
	}
	for _, message := range s.full {
		if s.req.Limit > 0 && s.left == 0 {
			break
		}
		var err error
		if of := message.Pairs; len(of) == 1 && of[0].Type == rpcv1.Pair_SORTED_SET && !s.peer && !s.req.KeysOnly {
			err = s.sendMembers(of[0])
		} else if len(of) > 0 {
			err = s.sendOne(message)
		}
		if err != nil {
			return err
		}
	}
	s.full = s.full[:0]
	return s.stream.Context().Err()
}

// mayGoOn looks at the caller's rights again: a slow reader makes a scan last for as long as it
// likes.
func (s *scanStream) mayGoOn() error {
	s.refused = callerOf(s.stream.Context()).mayScan(s.req)
	return s.refused
}

// sendOne sends a message, as far as the limit allows.
func (s *scanStream) sendOne(message *rpcv1.ScanReply) error {
	s.trim(message)
	return s.stream.Send(message)
}

// trim leaves a message what the limit allows.
func (s *scanStream) trim(message *rpcv1.ScanReply) {
	if s.req.Limit > 0 {
		message.Pairs = message.Pairs[:min(uint64(len(message.Pairs)), s.left)]
		s.left -= uint64(len(message.Pairs))
	}
}

// sendMembers sends the members of a set, some at a time. A set whose key was deleted meanwhile, or
// has another value by now, has no more.
func (s *scanStream) sendMembers(head *rpcv1.Pair) error {
	c := s.r.core
	var ends sortedset.Ends
	behind := func(member []byte) {
		if s.req.Reverse {
			ends.To = bytes.Clone(member)
		} else {
			ends.From = append(bytes.Clone(member), 0)
		}
	}
	if a := s.req.After; a != nil && bytes.Equal(a.Key, head.Key) {
		behind(append([]byte{}, a.Value...))
	}
	for more := true; more; {
		if err := s.mayGoOn(); err != nil {
			return err
		}
		sets, err := c.Sets(head.Key, false, c.Limit, 0)
		if err != nil {
			return err
		}
		message, size := s.begin(), 0
		more = false
		err = sets.ByMember(head.Key, ends, s.req.Reverse, func(p sortedset.Pair) bool {
			if more = size >= s.messageBytes() || s.req.Limit > 0 && uint64(len(message.Pairs)) == s.left; more {
				return false
			}
			size += len(head.Key) + len(p.Member) + 24
			message.Pairs = append(message.Pairs, &rpcv1.Pair{Key: head.Key, Value: p.Member, Deadline: head.Deadline, Type: rpcv1.Pair_MEMBER, Score: p.Score})
			return true
		})
		switch err = engine.SetFailure(err); {
		case engine.CodeOf(err) == rpcv1.Outcome_WRONG_TYPE:
			return nil
		case err != nil:
			return err
		}
		if len(message.Pairs) > 0 {
			behind(message.Pairs[len(message.Pairs)-1].Value)
			err = s.sendOne(message)
		}
		if err != nil || s.req.Limit > 0 && s.left == 0 {
			return err
		}
	}
	return nil
}
