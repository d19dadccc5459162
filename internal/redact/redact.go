// Package redact removes secrets from the source of a task. Lists, pages, webhooks, logs, traces, errors and the
// audit log show only the public form that it returns.
//
// [Source] removes the user and password, the query and the fragment of a URL of any scheme. [Text] does this to every
// URL in a text, such as an error, and also removes the secrets of the task's own source. The package cannot recognise
// a secret in the path of a URL or in a file name; these stay.
package redact

import (
	"encoding/json"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// hidden replaces a removed part.
const hidden = "…"

var schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// Source returns the public form of a source. An absolute path stays whole: "?" and "#" are part of a file name. Of a
// source that is not understood and may contain a secret, only the scheme stays.
func Source(s string) string {
	scheme := schemePattern.FindString(s)
	if rest, ok := strings.CutPrefix(s[len(scheme):], "//"); ok {
		return withAuthority(scheme+"//", rest, s)
	}
	switch {
	case strings.HasPrefix(s, "/"):
		return s
	case strings.EqualFold(scheme, "data:"), scheme != "" && strings.ContainsAny(s, "@?#"):
		return scheme + hidden
	case strings.ContainsAny(s, "@?"):
		return hidden
	}
	return s
}

// uploadPattern matches where uploaded files are stored, in a directory or a bucket.
var uploadPattern = regexp.MustCompile(`^(?:/|s3://).*/uploads/([A-Z2-7]{26})/source(?:\.[^/]*)?$`)

// Shown returns what users see of a source: its public form, or upload:ID for an uploaded file, whose path is internal.
func Shown(s string) string {
	if m := uploadPattern.FindStringSubmatch(s); m != nil {
		return "upload:" + m[1]
	}
	return Source(s)
}

// withAuthority returns the public form of a URL with a host. It cuts the text instead of formatting the parsed URL, so
// that the remaining characters are those of the source.
func withAuthority(scheme, rest, s string) string {
	if _, err := url.Parse(s); err != nil {
		return scheme + hidden
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		end = len(rest)
	}
	return scheme + rest[strings.LastIndexByte(rest[:end], '@')+1:]
}

// passwordPatterns match the passwords in the address of a database. As much as possible may be a password.
var passwordPatterns = []*regexp.Regexp{
	regexp.MustCompile(`(?s)(://[^:@/]*:).*(@)`),
	regexp.MustCompile(`(?i)(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]*)()`),
}

// Passwords returns a setting, such as the address of a database, without the passwords in it.
func Passwords(s string) string {
	for _, p := range passwordPatterns {
		s = p.ReplaceAllString(s, "${1}"+hidden+"${2}")
	}
	return s
}

// Name returns the last path element of a source's public form, as a short name of its task.
func Name(source string) string {
	shown := Source(source)
	base := path.Base(shown)
	switch {
	case base == "/" || base == "." || strings.HasSuffix(shown, hidden):
		return shown
	case !strings.HasPrefix(source, "/") && strings.Contains(source, "://"):
		if decoded, err := url.PathUnescape(base); err == nil {
			return decoded
		}
	}
	return base
}

// Filter returns a search text for sources in the form in which the audit log may keep it: hidden if it may be part of
// a secret.
func Filter(part string) string {
	if part != Source(part) || strings.ContainsAny(part, "?#@=&") {
		return hidden
	}
	return part
}

// Error returns err with a message redacted by [Text].
func Error(err error, source string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if public := Text(text, source); public != text {
		return &redactedError{public, err}
	}
	return err
}

type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

var urlPattern = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'`<>]*")

// maxText is how much of a text is redacted, in bytes: twice what the database keeps of an error, because redaction
// shortens texts.
const maxText = 128 << 10

// Text returns a text, such as an error, with the public form of each URL and without the secrets of source. It cuts
// longer texts than are kept, so that its time is bounded.
func Text(text, source string) string {
	secrets := secretsOf(source)
	if end := cutPoint(text, secrets); end < len(text) {
		return removeSecrets(text[:end], source, secrets) + " …"
	}
	return removeSecrets(text, source, secrets)
}

// cutPoint returns the length to which a text is cut. It is no point within a secret or a URL: half of one would not
// be recognised.
func cutPoint(text string, secrets []string) int {
	if len(text) <= maxText {
		return len(text)
	}
	end := maxText
	for isMoved := true; isMoved; {
		isMoved = false
		for _, s := range secrets {
			from := max(end-len(s)+1, 0)
			if i := strings.Index(text[from:min(end+len(s)-1, len(text))], s); i >= 0 {
				end, isMoved = from+i, true
			}
		}
	}
	for _, match := range urlPattern.FindAllStringIndex(text[:end], -1) {
		if match[1] == end {
			return match[0]
		}
	}
	return end
}

// removeSecrets is [Text] for a text of any length.
func removeSecrets(text, source string, secrets []string) string {
	if len(secrets) > 0 {
		text = strings.ReplaceAll(text, source, Source(source))
	}
	if strings.Contains(text, "://") {
		text = urlPattern.ReplaceAllStringFunc(text, Source)
	}
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

// JSON returns a JSON value in which every string, and every name of a member, is redacted
// as by [Text], but whole. Numbers keep their digits. It returns nil for invalid JSON.
func JSON(raw json.RawMessage, source string) json.RawMessage {
	secrets := secretsOf(source)
	if !strings.Contains(string(raw), "://") && len(secrets) == 0 {
		return raw
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil
	}
	public, err := json.Marshal(redactValue(value, source, secrets))
	if err != nil {
		return nil
	}
	return public
}

func redactValue(value any, source string, secrets []string) any {
	switch v := value.(type) {
	case string:
		return removeSecrets(v, source, secrets)
	case []any:
		for i := range v {
			v[i] = redactValue(v[i], source, secrets)
		}
	case map[string]any:
		public := make(map[string]any, len(v))
		for key := range v {
			public[removeSecrets(key, source, secrets)] = redactValue(v[key], source, secrets)
		}
		return public
	}
	return value
}

// Shorter secrets are not searched for in a text, because they would match parts of ordinary words.
const (
	minPassword = 4
	minValue    = 8
)

// secretsOf returns the parts of a source that its public form leaves out, the longest first.
func secretsOf(source string) (secrets []string) {
	if Source(source) == source {
		return nil
	}
	add := func(minLength int, all ...string) {
		for _, s := range all {
			if len(s) >= minLength && !slices.Contains(secrets, s) {
				secrets = append(secrets, s)
			}
		}
	}
	add(minPassword, source)
	if u, err := url.Parse(source); err == nil {
		if u.User != nil {
			password, _ := u.User.Password()
			_, escaped, _ := strings.Cut(u.User.String(), ":")
			add(minPassword, password, escaped)
		}
		add(minPassword, u.RawQuery, u.Fragment, u.RawFragment)
		for pair := range strings.SplitSeq(u.RawQuery, "&") {
			_, value, _ := strings.Cut(pair, "=")
			decoded, err := url.QueryUnescape(value)
			add(minValue, value)
			if err == nil {
				add(minValue, decoded)
			}
		}
	}
	_, rest, _ := strings.Cut(source, "//")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		_, password, _ := strings.Cut(rest[:at], ":")
		add(minPassword, rest[:at], password)
	}
	slices.SortStableFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return secrets
}
