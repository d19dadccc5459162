package video

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/language"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/store"
)

// parser parses the value of a member into a T.
type parser[T any] func(to *T, value json.RawMessage) error

// parsers are those of the members of an object, by name. A member that is null has its default.
type parsers[T any] map[string]parser[T]

// settingMembers are the members of a profile, in the order of the documentation.
var settingMembers = []string{
	"renditions", "codecs", "hdr", "copy", "quality", "preset", "audio", "poster", "mp4", "preview", "watch_early", "failed_rendition",
	"automatic_captions", "encryption", visibilityMember, "requires", "prefers",
}

const (
	visibilityMember = "visibility"
	autoQuality      = "auto" // the text of AutoQuality
)

var settingParsers = parsers[Settings]{
	"renditions": parseRenditions,
	"codecs":     parseCodecs,
	"hdr": func(s *Settings, value json.RawMessage) error {
		if json.Unmarshal(value, &s.HDR) != nil {
			return wrongValue("hdr", value, "true or false")
		}
		return nil
	},
	"copy": func(s *Settings, value json.RawMessage) error {
		if json.Unmarshal(value, &s.Copy) != nil {
			return wrongValue("copy", value, "true or false")
		}
		return nil
	},
	"quality": func(s *Settings, value json.RawMessage) error {
		if text, ok := parseText(value); ok && text == autoQuality {
			s.Quality = AutoQuality
			return nil
		}
		n, err := strconv.Atoi(string(value))
		if err != nil || n < minQuality || n > maxQuality {
			return wrongValue("quality", value, "a whole number from %d (best) to %d, or %s", minQuality, maxQuality, autoQuality)
		}
		s.Quality = Quality(n)
		return nil
	},
	"preset": func(s *Settings, value json.RawMessage) error {
		if text, ok := parseText(value); ok && slices.Contains(Presets(), text) {
			s.Preset = text
			return nil
		}
		return wrongValue("preset", value, "one of %s", strings.Join(Presets(), ", "))
	},
	"audio": func(s *Settings, value json.RawMessage) error {
		object, err := parseObject("audio", value)
		if err == nil {
			err = audioParsers.parse(&s.Audio, object, "audio: ", audioMembers)
		}
		return err
	},
	"poster":  func(s *Settings, value json.RawMessage) error { return parseTime("poster", value, &s.Poster) },
	"preview": func(s *Settings, value json.RawMessage) error { return parseTime("preview", value, &s.Preview) },
	"mp4": func(s *Settings, value json.RawMessage) error {
		text, ok := parseText(value)
		if !ok {
			text = string(value)
		}
		if height, err := ParseHeight(text); err == nil {
			text = renditionName(height)
		} else if text != largestMP4 {
			return wrongValue("mp4", value, "one of %s, or %s", HeightList(), largestMP4)
		}
		s.MP4 = text
		return nil
	},
	"watch_early": func(s *Settings, value json.RawMessage) error {
		if json.Unmarshal(value, &s.WatchEarly) != nil {
			return wrongValue("watch_early", value, "true or false")
		}
		return nil
	},
	"failed_rendition": func(s *Settings, value json.RawMessage) error {
		if text, ok := parseText(value); ok && (text == failedWaits || text == failedIsSkipped) {
			s.FailedRendition = text
			return nil
		}
		return wrongValue("failed_rendition", value, "%s or %s", failedWaits, failedIsSkipped)
	},
	"automatic_captions": parseAutomaticCaptions,
	"encryption": func(s *Settings, value json.RawMessage) error {
		if text, ok := parseText(value); !ok || text != EncryptionAES128 {
			return wrongValue("encryption", value, "%s, or null for none", EncryptionAES128)
		}
		s.Encryption = EncryptionAES128
		return nil
	},
	visibilityMember: func(s *Settings, value json.RawMessage) error {
		if text, ok := parseText(value); ok && (text == VisibilityPublic || text == VisibilitySigned) {
			s.Visibility = text
			return nil
		}
		return wrongValue(visibilityMember, value, "%s or %s", VisibilityPublic, VisibilitySigned)
	},
	"requires": func(s *Settings, value json.RawMessage) error { return parseLabels("requires", value, &s.Requires) },
	"prefers":  func(s *Settings, value json.RawMessage) error { return parseLabels("prefers", value, &s.Prefers) },
}

var audioMembers = []string{"bitrate", "loudness", "surround", "default"}

var audioParsers = parsers[AudioSettings]{
	"bitrate": func(s *AudioSettings, value json.RawMessage) error {
		text, ok := parseText(value)
		if !ok {
			text = string(value)
		}
		unit := 1
		if digits, isKilo := strings.CutSuffix(text, "k"); ok && isKilo {
			text, unit = digits, 1000
		}
		n, err := strconv.Atoi(text)
		if n *= unit; err != nil || n < minAudioBitrate || n > maxAudioBitrate {
			return wrongValue("audio.bitrate", value, `bits per second from %d to %d, such as 128000 or "128k"`, minAudioBitrate, maxAudioBitrate)
		}
		s.Bitrate = n
		return nil
	},
	"loudness": func(s *AudioSettings, value json.RawMessage) error {
		if err := json.Unmarshal(value, &s.Loudness); err != nil || s.Loudness < minLoudness || s.Loudness > maxLoudness {
			return wrongValue("audio.loudness", value,
				"LUFS from %d to %d, such as -16, or null for the loudness of the source", minLoudness, maxLoudness)
		}
		return nil
	},
	"surround": func(s *AudioSettings, value json.RawMessage) error {
		if err := json.Unmarshal(value, &s.Surround); err != nil {
			return wrongValue("audio.surround", value, "true or false")
		}
		return nil
	},
	"default": func(s *AudioSettings, value json.RawMessage) error {
		text, ok := parseText(value)
		if !ok {
			text = string(value)
		}
		number, err := strconv.Atoi(text)
		if _, wrong := language.Parse(text); wrong != nil && (err != nil || number < 1) {
			return wrongValue("audio.default", value, `a language such as "de", or the number of an audio stream, from 1 on`)
		}
		s.Default = text
		return nil
	},
}

// parse parses the members of an object. Its errors name the object by prefix.
func (p parsers[T]) parse(to *T, object map[string]json.RawMessage, prefix string, allowed []string) error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(allowed, name) {
			return invalidParams("%sunknown member %q; allowed: %s", prefix, name, strings.Join(allowed, ", "))
		}
	}
	for _, name := range allowed {
		value, ok := object[name]
		if !ok || isNull(value) {
			continue
		}
		if err := p[name](to, bytes.TrimSpace(value)); err != nil {
			return err
		}
	}
	return nil
}

func isNull(value json.RawMessage) bool { return string(bytes.TrimSpace(value)) == "null" }

func parseObject(name string, value json.RawMessage) (map[string]json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(value, &object); err != nil || object == nil {
		return nil, wrongValue(name, value, "an object")
	}
	return object, nil
}

func parseText(value json.RawMessage) (text string, ok bool) {
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

// parseRenditions parses heights: 1080 or "1080p".
func parseRenditions(s *Settings, value json.RawMessage) error {
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil || len(list) == 0 {
		return wrongValue("renditions", value, "a list of heights, at least one of %s", HeightList())
	}
	for _, item := range list {
		text, ok := parseText(item)
		if !ok {
			text = string(item)
		}
		height, err := ParseHeight(text)
		if err != nil {
			return err
		}
		if !slices.Contains(s.Renditions, height) {
			s.Renditions = append(s.Renditions, height)
		}
	}
	slices.SortFunc(s.Renditions, func(a, b int) int { return b - a })
	return nil
}

// parseCodecs parses names of codecs. H.264 may be among them, because every video has it.
func parseCodecs(s *Settings, value json.RawMessage) error {
	const always = "h264"
	var names []string
	err := json.Unmarshal(value, &names)
	allowed := append([]string{always}, media.LadderCodecs()...)
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			err = errors.New("unknown codec")
		}
		if name != always && !slices.Contains(s.Codecs, name) {
			s.Codecs = append(s.Codecs, name)
		}
	}
	if err != nil {
		return wrongValue("codecs", value, "a list of %s; h264 is always made", strings.Join(allowed, ", "))
	}
	return nil
}

// ParseHeight parses the height of a rendition, such as 1080 or 1080p.
func ParseHeight(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "p"))
	if err != nil || !slices.Contains(media.LadderHeights(), n) {
		return 0, invalidParams("renditions: %.20q is not a height; allowed: %s", text, HeightList())
	}
	return n, nil
}

// HeightList lists the heights of renditions for messages.
func HeightList() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(media.LadderHeights()), " ", ", "), "[]")
}

// parseTime parses a number of seconds, or a text: "12.5", "0:01:30.5" or "25%".
func parseTime(name string, value json.RawMessage, to *string) error {
	text, ok := parseText(value)
	if !ok {
		text = string(value)
	}
	number, isShare := strings.CutSuffix(text, "%")
	limit := float64(maxTimeSeconds)
	if isShare {
		limit = 100
	}
	n, err := 0.0, error(nil)
	for _, part := range strings.SplitN(number, ":", 3) {
		more, wrong := strconv.ParseFloat(part, 64)
		if !(more >= 0) {
			wrong = strconv.ErrRange
		}
		n, err = 60*n+more, cmp.Or(err, wrong)
	}
	if err != nil || n > limit || isShare && (!ok || strings.Contains(number, ":")) {
		return wrongValue(name, value, `a number of seconds such as 12.5, a time such as "0:01:30", or a share of the duration such as "25%%"`)
	}
	*to = strconv.FormatFloat(n, 'f', -1, 64) + text[len(number):]
	return nil
}

// parseAutomaticCaptions parses true, false, or the language that is spoken.
func parseAutomaticCaptions(s *Settings, value json.RawMessage) error {
	text, _ := parseText(value)
	spoken, err := language.ParseBase(text)
	switch {
	case string(value) == "false":
	case string(value) == "true", text == media.DetectLanguage:
		s.AutomaticCaptions = media.DetectLanguage
	case err == nil:
		s.AutomaticCaptions = spoken.String()
	default:
		return wrongValue("automatic_captions", value, `true, false, or the code of the language that is spoken, such as "de"`)
	}
	return nil
}

func parseLabels(name string, value json.RawMessage, to *[]string) error {
	if err := json.Unmarshal(value, to); err != nil {
		return wrongValue(name, value, "a list of labels")
	}
	if len(*to) > maxLabels {
		return invalidParams("%s has %d labels; the maximum is %d", name, len(*to), maxLabels)
	}
	for _, label := range *to {
		if err := store.CheckLabel(label); err != nil {
			return invalidParams("%s: %v", name, err)
		}
	}
	return nil
}
