// Package redact gives the public form of a task's source: the form that lists,
// pages, webhooks, logs, traces, errors and the audit show.
//
// [Source] removes a URL's user and password, its query and its fragment, for every
// scheme. [Text] does the same to the URLs in a text, such as an error, and removes
// the secrets of the task's own source from it. A secret in the path of a URL, or in
// the name of a file, cannot be told from a name, and stays.
package redact

import (
	"encoding/json"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// hidden stands for what is not shown.
const hidden = "…"

var schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// Source is the public form of a source. A path is shown whole: "?" and "#" are
// letters of a file's name. Where a text cannot be understood and could hold a
// secret, only its scheme is shown.
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

// withAuthority is the public form of a URL with a host. It cuts the text instead of
// writing the URL anew, so that every letter shown is one of the source's.
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

// Name is the last part of a source's public form, to call a task by.
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

// Filter is a part of a source that somebody searched for, as the audit may keep it:
// nothing of it where it could be part of a secret.
func Filter(part string) string {
	if part != Source(part) || strings.ContainsAny(part, "?#@=&") {
		return hidden
	}
	return part
}

// Error is err with its message as [Text] has it.
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

// Text is a text in which each URL has its public form, and which has none of the
// secrets of source.
func Text(text, source string) string {
	secrets := secretsOf(source)
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

// JSON is a JSON value in which every text is as [Text] has it. Its numbers keep
// their digits.
func JSON(raw json.RawMessage, source string) json.RawMessage {
	if !strings.Contains(string(raw), "://") && len(secretsOf(source)) == 0 {
		return raw
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil // it is nothing that could be shown in part
	}
	public, err := json.Marshal(each(value, source))
	if err != nil {
		return nil
	}
	return public
}

func each(value any, source string) any {
	switch v := value.(type) {
	case string:
		return Text(v, source)
	case []any:
		for i := range v {
			v[i] = each(v[i], source)
		}
	case map[string]any:
		public := make(map[string]any, len(v))
		for key := range v {
			public[Text(key, source)] = each(v[key], source)
		}
		return public
	}
	return value
}

// How long a secret must be to be looked for by itself. Shorter ones would be found
// in other words.
const (
	passwordLeast = 4
	valueLeast    = 8
)

// secretsOf is what the public form of a source leaves out, as a whole and in its
// parts, the longest first.
func secretsOf(source string) (secrets []string) {
	if Source(source) == source {
		return nil
	}
	add := func(least int, all ...string) {
		for _, s := range all {
			if len(s) >= least && !slices.Contains(secrets, s) {
				secrets = append(secrets, s)
			}
		}
	}
	add(passwordLeast, source)
	if u, err := url.Parse(source); err == nil {
		if u.User != nil {
			password, _ := u.User.Password()
			_, escaped, _ := strings.Cut(u.User.String(), ":")
			add(passwordLeast, password, escaped)
		}
		add(passwordLeast, u.RawQuery, u.Fragment, u.RawFragment)
		for pair := range strings.SplitSeq(u.RawQuery, "&") {
			_, value, _ := strings.Cut(pair, "=")
			decoded, err := url.QueryUnescape(value)
			add(valueLeast, value)
			if err == nil {
				add(valueLeast, decoded)
			}
		}
	}
	_, rest, _ := strings.Cut(source, "//")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		_, password, _ := strings.Cut(rest[:at], ":")
		add(passwordLeast, rest[:at], password)
	}
	slices.SortStableFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return secrets
}
