package webhook

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/redact"
)

// The formats of the bodies that a webhook gets.
const (
	FormatCuelight = "cuelight" // the JSON of Standard Webhooks, for programs
	FormatSlack    = "slack"    // a message for an incoming webhook of Slack, or of a server that is compatible
	FormatDiscord  = "discord"  // a message for a webhook of Discord
)

// Formats returns the formats that a webhook can have.
func Formats() []string { return []string{FormatCuelight, FormatSlack, FormatDiscord} }

func checkFormat(format string) error {
	if format == "" || slices.Contains(Formats(), format) {
		return nil
	}
	return fmt.Errorf("%w: unknown format %q; allowed: %s", ErrInvalid, sanitize(format), strings.Join(Formats(), ", "))
}

// defaultTypes are the types of a new webhook that requests none: those of a chat are for operators.
func defaultTypes(format string) []string {
	if format == FormatSlack || format == FormatDiscord {
		return []string{allAlerts}
	}
	return []string{}
}

// PublicURL returns the URL for logs. The path of a chat's webhook is its secret.
func (h Webhook) PublicURL() string {
	u, err := url.Parse(h.URL)
	if err != nil || h.Format == FormatCuelight {
		return redact.Source(h.URL)
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// Maximum sizes of the parts of a message, in bytes. Discord accepts 2000 characters and Slack 3000, escaped.
const (
	maxMessageError = 200
	maxMessageField = 80
	maxMessageLink  = 400
)

// body returns what is sent of a stored payload. A delivery is formatted when it is sent, so that it has the
// format of its webhook also after a change.
func (w *Webhooks) body(format, stored string) string {
	if format != FormatSlack && format != FormatDiscord {
		return stored
	}
	var p payload
	if json.Unmarshal([]byte(stored), &p) != nil {
		return stored // of another program
	}
	link := ""
	if p.Data.Task != nil && w.options.Dashboard != "" {
		link = w.options.Dashboard + "/videos/" + p.Data.Task.ID.String()
	}
	if len(link) > maxMessageLink {
		link = ""
	}
	if format == FormatSlack {
		return slackBody(p, link)
	}
	return discordBody(p, link)
}

// slackBody returns a message for Slack, whose markup has no escapes for emphasis: the block has plain text, with a
// link of its own. The text is for notifications and for servers without blocks.
func slackBody(p payload, link string) string {
	section := func(kind, text string) map[string]any {
		return map[string]any{"type": "section", "text": map[string]string{"type": kind, "text": text}}
	}
	text, blocks := p.message(escapeSlackText), []any{section("plain_text", p.message(slackEscaper.Replace))}
	if link != "" {
		link = "<" + slackEscaper.Replace(link) + "|Open the video>"
		text, blocks = text+" "+link, append(blocks, section("mrkdwn", link))
	}
	return encodeMessage(map[string]any{"text": text, "blocks": blocks})
}

// slackEscaper escapes what Slack requires, also in plain text.
var slackEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escapeSlackText also replaces characters that format a message, or mention somebody, in Slack or in Markdown, by
// their full-width forms.
func escapeSlackText(s string) string {
	const fullWidth = '＊' - '*'
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("\\*_~`|[]#@", r) {
			return r + fullWidth
		}
		return r
	}, slackEscaper.Replace(s))
}

// suppressEmbeds is a flag of Discord's messages: it shows no previews of links.
const suppressEmbeds = 1 << 2

// discordBody returns a message in Discord's Markdown. It mentions nobody, whatever the text says.
func discordBody(p payload, link string) string {
	text := p.message(escapeMarkdown)
	if link != "" {
		text += " <" + link + ">"
	}
	return encodeMessage(map[string]any{
		"content": text, "allowed_mentions": map[string]any{"parse": []string{}}, "flags": suppressEmbeds,
	})
}

func escapeMarkdown(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\*_~`|<>[]()#@", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func encodeMessage(message map[string]any) string {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // texts and numbers can be encoded
	}
	return string(text)
}
