package identity

import "strings"

// TrimPassword is the password that a file or a Secret has: all of it but white space at its end,
// which editors and echo leave there. The operator, servers and the SDK must agree. An empty one is
// none: were its digest given to servers, everybody could log in. `echo "$UNSET" | base64` makes
// one of a line's end.
func TrimPassword(text string) string { return strings.TrimRight(text, " \t\r\n") }
