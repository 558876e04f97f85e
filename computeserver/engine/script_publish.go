package engine

import (
	"bytes"
	"fmt"
	"slices"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// The messages of a script are noted while it runs, and travel with its answer to the server that
// sent it for a client, which publishes them: then the group was done, once, and is durable,
// whatever became of earlier tries. A script whose group failed publishes nothing. If the answer is
// lost, so are the messages: they are delivered at most once.
//
// The server that runs the script knows no users, so the script says which channels it may use.

// MostPublished bounds what a script publishes: the bytes of its messages, each of which counts for
// publishedOverhead more.
const (
	MostPublished     = 64 << 10
	publishedOverhead = 64
)

// Publish implements ScriptHost.
func (x *scriptRun) Publish(m *rpcv1.PublishedMessage) error {
	refuse := func(why string) error { return &Failure{Code: rpcv1.Outcome_INVALID, Message: why} }
	if x.reads {
		return refuse(errReadOnly)
	}
	may := slices.ContainsFunc(x.channels, func(rule []byte) bool {
		begin, is := bytes.CutSuffix(rule, []byte("*"))
		return is && bytes.HasPrefix(m.Channel, begin) || bytes.Equal(m.Channel, rule)
	})
	if !may {
		return refuse("The user executing the script can't publish to the channel mentioned in the command")
	}
	size := len(m.Channel) + len(m.Payload) + publishedOverhead
	if size > x.room { // a script may publish what went wrong
		return refuse(fmt.Sprintf("a script publishes at most %d bytes, %d of each message counted; publish when EVAL has answered", MostPublished, publishedOverhead))
	}
	x.room -= size
	x.steps += (len(m.Channel) + len(m.Payload)) / pairBytesAStep
	x.published = append(x.published, m)
	return nil
}

// errReadOnly is the error of Redis.
const errReadOnly = "Write commands are not allowed from read-only scripts."
