package client

import (
	"cmp"
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// ending is how one attempt of an operation ends at the fake server.
type ending int

const (
	answers        ending = iota
	notOwner              // the codes that say that nothing was done
	unavailable           //
	timedOut              //
	poolFull              //
	dataLost              //
	invalid               //
	unknownDone           // the code UNKNOWN, of a change that was made
	unknownNotDone        // and of one that was not
	brokenBefore          // the stream breaks before the change
	brokenAfter           // and after it
	drains                // the stream ends with ABORTED
	refuses               // a new stream is refused, for its password
	silent                // no answer, and nothing is done
	silentDone            // no answer, but it is done
	late                  // no answer, and it is done when the call is over
	endings
)

func (e ending) String() string {
	return [...]string{"answers", "not owner", "unavailable", "timed out", "pool full", "data lost", "invalid", "unknown, done", "unknown, not done",
		"broken before", "broken after", "drains", "refuses", "silent", "silent, done", "late"}[e]
}

// fake is a compute server of one key. What becomes of each attempt is told by a script; when that
// is over, over is called, and attempts are refused.
type fake struct {
	rpcv1.UnimplementedComputeServer
	address string
	pod     string // its address in the map; empty = address
	server  *grpc.Server
	patient bool // clients wait for longer than tests: silence has to end the call

	mu      sync.Mutex
	key     string // of the call; requests of earlier ones may arrive late
	script  []ending
	over    func()
	index   string // the identity that it names; empty = "index"
	value   []byte // of the key; nil = it is not there
	effects int    // changes made
	doubts  int    // attempts that a client cannot know the outcome of
	later   []*rpcv1.Operation
}

// newFake starts a fake server.
func newFake(t *testing.T) *fake {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{address: listener.Addr().String()}
	f.serve(listener)
	t.Cleanup(func() { f.server.Stop() })
	return f
}

func (f *fake) serve(listener net.Listener) {
	g := grpc.NewServer()
	rpcv1.RegisterComputeServer(g, f)
	f.server = g
	go func() { _ = g.Serve(listener) }()
}

// replace puts a server of another identity in the place of this one, at its address.
func (f *fake) replace(t *testing.T, index string) {
	t.Helper()
	f.server.Stop()
	f.become(index)
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	f.serve(listener)
}

// connect makes a client that gives up an attempt after so long.
func (f *fake) connect(t *testing.T, attempt time.Duration) *Client {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	c, err := Connect(ctx, Options{Endpoints: []string{f.address}, Insecure: true, Attempt: attempt, Limit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c.slack = 0
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// begin sets the stage for one call.
func (f *fake) begin(value []byte, over func(), script ...ending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key = string(theKey)
	f.script, f.over, f.value, f.effects, f.doubts, f.later = script, over, value, 0, 0, nil
}

// end lets take effect what is late, and says what became of the call.
func (f *fake) end() (effects, doubts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range f.later {
		f.apply(op)
	}
	return f.effects, f.doubts
}

// GetMap implements rpcv1.ComputeServer.
func (f *fake) GetMap(context.Context, *rpcv1.GetComputeMapRequest) (*rpcv1.ComputeMapReply, error) {
	f.mu.Lock()
	index := cmp.Or(f.index, "index")
	f.mu.Unlock()
	m, err := partition.ByBoundaries(index, []partition.Server{{ID: 1, Name: "pod-1", RPC: cmp.Or(f.pod, f.address)}}, nil)
	if err != nil {
		return nil, err
	}
	data, err := m.Marshal(nil)
	return &rpcv1.ComputeMapReply{Generation: m.Generation, Map: data, Any: true}, err
}

// Do implements rpcv1.ComputeServer.
func (f *fake) Do(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
	f.mu.Lock()
	index := cmp.Or(f.index, "index")
	f.mu.Unlock()
	if meant := metadata.ValueFromIncomingContext(stream.Context(), dostream.HeaderIndex); !slices.Equal(meant, []string{index}) {
		return status.Errorf(codes.FailedPrecondition, "this server has the index %s", index)
	}
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		outcome, end, err := f.attempt(req.Operations[0])
		if end {
			return err
		}
		if outcome == nil {
			continue
		}
		if err := stream.Send(&rpcv1.DoReply{Id: req.Id, Outcomes: []*rpcv1.Outcome{outcome}, MapGeneration: 1}); err != nil {
			return err
		}
	}
}

// attempt is what becomes of one attempt: an outcome, silence, or the stream's end.
func (f *fake) attempt(op *rpcv1.Operation) (o *rpcv1.Outcome, end bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if string(op.Key) != f.key {
		return nil, false, nil // of an earlier call, whose client gave it up
	}
	if len(f.script) == 0 {
		f.doubts++ // this answer may be too late
		f.over()
		return &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE}, false, nil
	}
	e := f.script[0]
	f.script = f.script[1:]
	code := map[ending]rpcv1.Outcome_Code{notOwner: rpcv1.Outcome_NOT_OWNER, unavailable: rpcv1.Outcome_UNAVAILABLE, timedOut: rpcv1.Outcome_TIMED_OUT,
		poolFull: rpcv1.Outcome_POOL_FULL, dataLost: rpcv1.Outcome_DATA_LOST, invalid: rpcv1.Outcome_INVALID}
	if c, refused := code[e]; refused {
		return &rpcv1.Outcome{Code: c, Message: "as the script says"}, false, nil
	}
	switch e {
	case answers:
		return f.apply(op), false, nil
	case drains:
		return nil, true, status.Error(codes.Aborted, "as the script says")
	case refuses:
		return nil, true, status.Error(codes.Unauthenticated, "as the script says")
	}
	f.doubts++ // of a change, the client cannot know
	switch e {
	case unknownDone, brokenAfter, silentDone:
		f.apply(op)
	case late:
		f.later = append(f.later, op)
	}
	switch e {
	case unknownDone, unknownNotDone:
		return &rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN, Message: "as the script says"}, false, nil
	case brokenBefore, brokenAfter:
		return nil, true, status.Error(codes.Unavailable, "as the script says")
	}
	if f.patient {
		f.over()
	}
	return nil, false, nil
}

// apply runs an operation on the key. Called under mu.
func (f *fake) apply(op *rpcv1.Operation) *rpcv1.Outcome {
	there := f.value != nil
	switch op.Kind {
	case rpcv1.Operation_GROUP: // of one operation
		ops, err := op.Group()
		if err != nil || len(ops) != 1 {
			return &rpcv1.Outcome{Code: rpcv1.Outcome_INVALID, Message: "not a group of one operation"}
		}
		value, err := rpcv1.AppendGroupOutcomes(nil, []*rpcv1.Outcome{f.apply(ops[0])})
		if err != nil {
			return &rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN, Message: err.Error()}
		}
		return &rpcv1.Outcome{Value: value}
	case rpcv1.Operation_LOOKUP:
		if !there {
			return &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_FOUND}
		}
		return &rpcv1.Outcome{Value: f.value}
	case rpcv1.Operation_SCRIPT: // which puts "new"
		f.effects++
		f.value = []byte("new")
		return &rpcv1.Outcome{Value: []byte("+OK\r\n")}
	case rpcv1.Operation_INCREMENT: // in effect, as 0
		there = true
	case rpcv1.Operation_STORE:
		if op.Condition == rpcv1.Operation_ALWAYS {
			there = true // as UPSERT
		}
	}
	equal := op.Condition != rpcv1.Operation_EQUAL || string(f.value) == string(op.Operand)
	switch kind := op.Kind; {
	case kind == rpcv1.Operation_INSERT, op.Condition == rpcv1.Operation_ABSENT:
		if there {
			return &rpcv1.Outcome{Code: rpcv1.Outcome_ALREADY_EXISTS, Value: f.value}
		}
	case there && !equal:
		return &rpcv1.Outcome{Code: rpcv1.Outcome_MISMATCH}
	case kind != rpcv1.Operation_UPSERT:
		if !there {
			return &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_FOUND}
		}
	}
	f.effects++
	f.value = op.Value
	return &rpcv1.Outcome{}
}
