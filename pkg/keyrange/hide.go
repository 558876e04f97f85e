package keyrange

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
)

// Hider names keys by digests where no key may be shown. Digests tell keys apart, and one that has
// the salt recognizes a key by its digest; without the salt nobody can try out which key it is.
type Hider struct{ Salt []byte }

// digestBytes is the length of a digest.
const digestBytes = 8

// Digest stands for a key. That of an empty key is empty.
func (h Hider) Digest(key []byte) []byte {
	if len(key) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, h.Salt)
	mac.Write(key)
	return mac.Sum(nil)[:digestBytes]
}

// Quote is what stands in messages in the place of Quote of the key.
func (h Hider) Quote(key []byte) string {
	if len(key) == 0 {
		return `""`
	}
	return "#" + hex.EncodeToString(h.Digest(key))
}

// Format is what stands in messages in the place of Format of the span.
func (h Hider) Format(start, end []byte) string {
	if len(end) == 0 {
		return "[" + h.Quote(start) + ", end)"
	}
	return "[" + h.Quote(start) + ", " + h.Quote(end) + ")"
}

const quoted = `"(?:[^"\\]|\\.)*"(?:\.\.\. \(\d+ bytes\))?`

var (
	// a span as Format writes it
	spans = regexp.MustCompile(`\[` + quoted + `, (?:end|` + quoted + `)\)`)
	// a key by itself, as messages name it
	alone = regexp.MustCompile(`\b(?:keys?|keys from|keys below|above key|after|range|before it,) ` + quoted)
	texts = regexp.MustCompile(quoted)
)

// Text is a message with digests in the place of the keys that Quote and Format wrote. A key that
// Quote cut short has the digest of what is left of it, which is another one than the key's.
func (h Hider) Text(message string) string {
	hide := func(part string) string { return texts.ReplaceAllStringFunc(part, h.text) }
	return alone.ReplaceAllStringFunc(spans.ReplaceAllStringFunc(message, hide), hide)
}

// Texts is a message with digests in the place of all that stands in quotes, whether it is a key or
// not: for readers that may not see keys at all, and lose little by what else is hidden.
func (h Hider) Texts(message string) string {
	return texts.ReplaceAllStringFunc(h.Text(message), h.text)
}

// text hides one text that Quote wrote.
func (h Hider) text(quoted string) string {
	end := len(quoted)
	for quoted[end-1] != '"' {
		end--
	}
	key, err := strconv.Unquote(quoted[:end])
	if err != nil {
		return "#"
	}
	return h.Quote([]byte(key))
}
