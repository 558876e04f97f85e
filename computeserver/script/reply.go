package script

import (
	"bytes"
	"strconv"
	"strings"
)

// Replies become values as in Redis, with protocol RESP2: an integer is a number, a bulk string a
// string, an array a table, null is false, a status {ok=...} and an error {err=...}.

// fromReply reads one reply. What is no reply is an error of this server.
func (m *machine) fromReply(b []byte) (v value, rest []byte) {
	m.step(1)
	i := bytes.Index(b, lineEnd)
	if i < 1 {
		panic("script: a command gave no reply of RESP2")
	}
	line, rest := string(b[1:i]), b[i+2:]
	n, _ := strconv.Atoi(line)
	switch b[0] {
	case ':':
		return float64(n), rest
	case '+', '-':
		m.text(len(line))
		field := "ok"
		if b[0] == '-' {
			field = "err"
		}
		t := m.newTable()
		m.set(t, field, line)
		return t, rest
	case '$':
		if n < 0 {
			return false, rest
		}
		m.text(n)
		return string(rest[:n]), rest[n+2:]
	case '*':
		if n < 0 {
			return false, rest
		}
		t := m.newTable()
		for k := range n {
			v, rest = m.fromReply(rest)
			m.set(t, float64(k+1), v)
		}
		return t, rest
	}
	panic("script: a command gave no reply of RESP2")
}

var lineEnd = []byte("\r\n")

// appendReply appends what a script returned as a reply.
func (m *machine) appendReply(dst []byte, v value, resp3 bool, depth int) []byte {
	m.step(1)
	if len(dst) > MaxReply || depth > maxNested {
		panic(tooLongReply)
	}
	switch v := v.(type) {
	case bool:
		if v {
			return append(dst, ":1\r\n"...)
		}
	case float64:
		return append(strconv.AppendInt(append(dst, ':'), toInteger(v), 10), "\r\n"...)
	case string:
		return appendBulk(dst, v)
	case *table:
		return m.appendTable(dst, v, resp3, depth+1)
	}
	return appendNull(dst, resp3)
}

const tooLongReply Overrun = "the script returns more than 131072 bytes, or tables in tables without end, and nothing was done: return less"

func appendNull(dst []byte, resp3 bool) []byte {
	if resp3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "$-1\r\n"...)
}

func appendBulk(dst []byte, s string) []byte {
	if len(s) > MaxReply {
		panic(tooLongReply)
	}
	dst = append(strconv.AppendInt(append(dst, '$'), int64(len(s)), 10), "\r\n"...)
	return append(append(dst, s...), "\r\n"...)
}

func appendHead(dst []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(dst, kind), int64(n), 10), "\r\n"...)
}

// appendLine appends a status or an error, which is one line.
func appendLine(dst []byte, kind byte, s string) []byte {
	if len(s) > MaxReply {
		panic(tooLongReply)
	}
	return append(append(append(dst, kind), oneLine.Replace(s)...), "\r\n"...)
}

var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

func (m *machine) appendTable(dst []byte, t *table, resp3 bool, depth int) []byte {
	if s, ok := t.get("err").(string); ok {
		return appendLine(dst, '-', s)
	}
	if s, ok := t.get("ok").(string); ok {
		return appendLine(dst, '+', s)
	}
	if n, ok := t.get("double").(float64); ok {
		s := formatGeneral(n, 17)
		if resp3 {
			return append(append(append(dst, ','), s...), "\r\n"...)
		}
		return appendBulk(dst, s)
	}
	if of, ok := t.get("map").(*table); ok {
		return m.appendPairs(dst, of, resp3, depth, true)
	}
	if of, ok := t.get("set").(*table); ok {
		return m.appendPairs(dst, of, resp3, depth, false)
	}
	n := 0
	for n < len(t.list) && t.list[n] != nil { // nil ends an array
		n++
	}
	m.step(n / 4)
	dst = appendHead(dst, '*', n)
	for _, v := range t.list[:n] {
		dst = m.appendReply(dst, v, resp3, depth)
	}
	return dst
}

// appendPairs appends a table as a map, or its keys as a set. In RESP2 both are an array.
func (m *machine) appendPairs(dst []byte, t *table, resp3 bool, depth int, values bool) []byte {
	n := 0
	for k, v, _ := m.next(t, nil); k != nil; k, v, _ = m.next(t, k) {
		_ = v
		n++
	}
	switch {
	case resp3 && values:
		dst = appendHead(dst, '%', n)
	case resp3:
		dst = appendHead(dst, '~', n)
	case values:
		dst = appendHead(dst, '*', 2*n)
	default:
		dst = appendHead(dst, '*', n)
	}
	for k, v, _ := m.next(t, nil); k != nil; k, v, _ = m.next(t, k) {
		if dst = m.appendReply(dst, k, resp3, depth); values {
			dst = m.appendReply(dst, v, resp3, depth)
		}
	}
	return dst
}
