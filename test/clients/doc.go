// Package clients runs libraries that programs use for Redis against a dmindex local, each at its
// defaults, as the first pages of its documentation use it. It is a module of its own, so that
// nobody's build needs them. docs/clients.md names the versions, and what is not there. It looks at
// the status page in a browser, too.
package clients
