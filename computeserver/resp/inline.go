package resp

import "bytes"

// splitInline splits a command in plain text into its arguments, as Redis does. Arguments are
// separated by white space. Within double quotes there are escapes (\n, \r, \t, \b, \a, \xHH and \
// before any other byte), within single quotes \' only; behind a closing quote there must be white
// space, or nothing. It returns false where quotes are not balanced.
//
// The arguments are appended to args. They lie in line, which is written over: an argument is never
// longer than what stands for it, so what is written is behind what is read.
func splitInline(line []byte, args [][]byte) ([][]byte, bool) {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	for at := 0; ; {
		for at < len(line) && isSpace(line[at]) {
			at++
		}
		if at == len(line) {
			return args, true
		}
		from, to := at, at
		for at < len(line) && !endsWord(line[at]) {
			quote := line[at]
			if quote != '"' && quote != '\'' {
				line[to] = quote
				to++
				at++
				continue
			}
			closed := false
			for at++; at < len(line) && !closed; {
				b, n := unquote(line[at:], quote)
				if closed = b == quote && n == 1; !closed {
					line[to] = b
					to++
				}
				at += n
			}
			if !closed || at < len(line) && !isSpace(line[at]) {
				return args, false
			}
			break // the closing quote ends the argument
		}
		args = append(args, line[from:to:to])
	}
}

// unquote is the byte that text within quotes begins with, and how many bytes stand for it. The
// closing quote is itself, in one byte.
func unquote(text []byte, quote byte) (b byte, n int) {
	b = text[0]
	if b != '\\' || len(text) == 1 {
		return b, 1
	}
	next := text[1]
	if quote == '\'' {
		if next == '\'' {
			return next, 2
		}
		return b, 1
	}
	if next == 'x' && len(text) >= 4 {
		high, low := hexDigit(text[2]), hexDigit(text[3])
		if high >= 0 && low >= 0 {
			return byte(high<<4 | low), 4
		}
	}
	switch next {
	case 'n':
		next = '\n'
	case 'r':
		next = '\r'
	case 't':
		next = '\t'
	case 'b':
		next = '\b'
	case 'a':
		next = '\a'
	}
	return next, 2
}

func hexDigit(b byte) int {
	switch {
	case b >= '0' && b <= '9':
		return int(b - '0')
	case b >= 'a' && b <= 'f':
		return int(b - 'a' + 10)
	case b >= 'A' && b <= 'F':
		return int(b - 'A' + 10)
	}
	return -1
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// endsWord reports whether b ends an argument without quotes; not all white space does.
func endsWord(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }
