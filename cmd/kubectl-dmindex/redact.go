package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

const redacted = "<redacted>"

// shownEnv are the variables of containers whose values are shown: the operator sets them. Whatever
// else is in a pod somebody else put there, and it may be secret.
var shownEnv = []string{"GOMEMLIMIT", "NODE_NAME"}

// quoted is a string as Go quotes it, also where the text that holds it was quoted once more, as in
// JSON, and a long one of which messages show the beginning.
const quoted = `(?:"(?:[^"\\]|\\.)*"|\\"(?:[^"\\]|\\\\(?:\\"|\\\\|[^"\\]))*\\")(?:\.\.\. \(\d+ bytes\))?`

var (
	// interval is keys as messages and logs show them: ["a", "m") or ["m", end).
	interval = regexp.MustCompile(`\[(` + quoted + `), (` + quoted + `|end)\)`)

	// single is a key that a message names.
	single = regexp.MustCompile(`(\b[kK]ey(?:[ :=]+|s[ :]+))(` + quoted + `)`)

	// privateKey is one in PEM, whole or not.
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)

	// password is a value that is called one.
	password = regexp.MustCompile(`(?i)((?:password|passwd|token|secret|authorization|bearer)\\*"?\s*[=:]\s*(?:bearer\s+)?)(` + quoted + `|[^\s,;"}\])]+)`)
)

// redactText takes keys and secrets out of a text for people.
func redactText(text string) string {
	text = interval.ReplaceAllStringFunc(text, func(match string) string {
		parts := interval.FindStringSubmatch(match)
		return "[" + unquoted(parts[1]) + ", " + unquoted(parts[2]) + ")"
	})
	text = single.ReplaceAllStringFunc(text, func(match string) string {
		parts := single.FindStringSubmatch(match)
		return parts[1] + unquoted(parts[2])
	})
	return password.ReplaceAllString(privateKey.ReplaceAllString(text, redacted), "${1}"+redacted)
}

// unquoted is what stands for a quoted key.
func unquoted(text string) string {
	if text == "end" {
		return text
	}
	for _, q := range []string{text, `"` + text + `"`} {
		key, err := strconv.Unquote(q)
		if err != nil {
			continue
		}
		if q != text {
			if key, err = strconv.Unquote(key); err != nil {
				continue
			}
		}
		return digest([]byte(key))
	}
	return "#?" // the beginning of a long one
}

// salt is made when the plugin starts and kept nowhere.
var salt = []byte(rand.Text())

// digest stands for a key: within a report equal keys have equal ones, and without the salt nobody
// can try out which key it is. Servers and the operator have a salt of the index for what they
// show, which stands in a Secret: so their digests of a key are others. In the status of an index
// both stand side by side where it shows keys.
func digest(key []byte) string {
	if len(key) == 0 {
		return "begin"
	}
	return "#" + hex.EncodeToString(rpcv1.KeyDigest(salt, key))
}

// redactObject takes out of an object of Kubernetes what is secret, or may be: keys of the index,
// values of variables, annotations of others. What no reader needs goes as well.
func redactObject(object map[string]any) {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			for _, name := range slices.Collect(maps.Keys(annotations)) {
				if !strings.HasPrefix(name, "dmindex.io/") {
					annotations[name] = redacted
				}
				// The source that an index is loaded from has the template of pods in it.
				var inside map[string]any
				if text, ok := annotations[name].(string); ok && json.Unmarshal([]byte(text), &inside) == nil && inside != nil {
					redactValue("", inside)
					clean, err := json.Marshal(inside)
					if err != nil {
						clean = []byte(redacted)
					}
					annotations[name] = string(clean)
				}
			}
		}
	}
	redactValue("", object)
}

// redactValue goes through all of a value; field is the one that holds it.
func redactValue(field string, value any) any {
	switch v := value.(type) {
	case string:
		if field == "start" || field == "end" { // bounds of a range in base64
			if key, err := base64.StdEncoding.DecodeString(v); err == nil {
				return digest(key)
			}
			return redacted
		}
		return redactText(v)
	case []any:
		for i := range v {
			v[i] = redactValue(field, v[i])
		}
	case map[string]any:
		if field == "env" {
			if name, _ := v["name"].(string); v["value"] != nil && !slices.Contains(shownEnv, name) && !strings.HasPrefix(name, "DMINDEX_") {
				v["value"] = redacted
			}
		}
		// the annotations that a template gives to pods
		if field == "pod" || field == "podTemplate" {
			if annotations, ok := v["annotations"].(map[string]any); ok {
				for _, name := range slices.Collect(maps.Keys(annotations)) {
					annotations[name] = redacted
				}
			}
		}
		for _, name := range slices.Collect(maps.Keys(v)) {
			v[name] = redactValue(name, v[name])
		}
	}
	return value
}

// redactView is a view whose drawing shows no keys.
func redactView(v *view) *view {
	hidden := *v
	hidden.digests = true
	hidden.index = v.index.DeepCopy()
	conditions := hidden.index.Status.Conditions
	for i := range conditions {
		conditions[i].Message = redactText(conditions[i].Message)
	}
	hidden.backups = nil
	for i := range v.backups {
		b := v.backups[i].DeepCopy()
		for j := range b.Status.Conditions {
			b.Status.Conditions[j].Message = redactText(b.Status.Conditions[j].Message)
		}
		hidden.backups = append(hidden.backups, *b)
	}
	hidden.events = slices.Clone(v.events)
	for i := range hidden.events {
		hidden.events[i].Message = redactText(hidden.events[i].Message)
	}
	return &hidden
}
