package engine

import (
	"bytes"
	"fmt"
	"strconv"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// groupScript does to its keys what a group of the simulation does: those with an argument get it,
// and what all had is returned.
const groupScript = `
local had = {}
for i, key in ipairs(KEYS) do
	if ARGV[i] == '' then had[i] = redis.call('GET', key) else had[i] = redis.call('GETSET', key, ARGV[i]) end
end
return had`

// scriptOf is a group as a script.
func (w *ownWorld) scriptOf(in groupAsked) *rpcv1.Operation {
	s := &rpcv1.Script{Text: []byte(groupScript)}
	for i, n := range in.keys {
		s.Keys = append(s.Keys, groupedKey(n))
		var arg []byte
		if in.puts[i] > 0 {
			arg = w.value(in.puts[i])
		}
		s.Args = append(s.Args, arg)
	}
	value, err := rpcv1.AppendScript(nil, s)
	if err != nil {
		w.Report("%v", err)
	}
	kind := rpcv1.Operation_SCRIPT
	if !in.changes() {
		kind = rpcv1.Operation_SCRIPT_READ
	}
	return &rpcv1.Operation{Kind: kind, Key: s.Keys[0], Value: value}
}

// scriptAnswered is what the script returned, as outcomes of the operations of its group.
func (w *ownWorld) scriptAnswered(o *rpcv1.Outcome) (all []*rpcv1.Outcome) {
	lines := bytes.SplitAfter(o.Value, []byte("\r\n"))
	if len(lines[0]) < 2 || lines[0][0] != '*' {
		w.Report("a script answers %.200q", o.Value)
		return nil
	}
	for rest := o.Value[len(lines[0]):]; len(rest) > 0; {
		i := bytes.Index(rest, []byte("\r\n"))
		n, err := strconv.Atoi(string(rest[1:i]))
		if err != nil {
			w.Report("a script answers %.200q", o.Value)
			return nil
		}
		if rest = rest[i+2:]; n < 0 {
			all = append(all, &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_FOUND})
			continue
		}
		all = append(all, &rpcv1.Outcome{Value: rest[:n]})
		rest = rest[n+2:]
	}
	return all
}

// simCommands is Commands: GET and GETSET.
type simCommands struct{}

// Call implements Commands.
func (simCommands) Call(args [][]byte, host ScriptHost) []byte {
	op := &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: args[1]}
	if len(args) > 2 {
		op.Kind, op.Value = rpcv1.Operation_EXCHANGE, args[2]
	}
	switch o := host.Do(op); {
	case !o.Code.Meaning().Answer:
		return fmt.Appendf(nil, "-ERR %s\r\n", o.Message)
	case o.Code != rpcv1.Outcome_OK || op.Kind == rpcv1.Operation_EXCHANGE && !o.Found:
		return []byte("$-1\r\n")
	default:
		return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(o.Value), o.Value)
	}
}
