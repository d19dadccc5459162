package video

import (
	"bytes"
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

// Settings say how a video is made. A profile has these members, and the params of a task may have them.
// Zero values mean the defaults. docs/profiles.md describes the JSON.
type Settings struct {
	// Renditions are the heights to make, of media.LadderHeights, the largest first. Default: all.
	Renditions []int `json:"renditions,omitempty"`
	// LeftOut are heights that ingest has left out, because they show no more than smaller ones. Params and profiles do not have it.
	LeftOut []int `json:"left_out,omitempty"`
	// Codecs are those of further renditions of 720p and more, next to the ones in H.264: of media.LadderCodecs.
	Codecs []string `json:"codecs,omitempty"`
	// HDR keeps the dynamic range of an HDR source in these renditions; those in H.264 are SDR.
	HDR bool `json:"hdr,omitempty"`
	// Quality is the CRF and Preset is x264's. Default: those of the worker.
	Quality int    `json:"quality,omitempty"`
	Preset  string `json:"preset,omitempty"`
	// Audio is about all audio streams.
	Audio AudioSettings `json:"audio,omitzero"`
	// Poster is the time of the poster's picture in seconds, such as "12.5", or a share of the duration,
	// such as "25%". Default: a frame with much detail.
	Poster string `json:"poster,omitempty"`
	// MP4 is the height of the rendition that video.mp4 has, such as "720p", or "max". Default: there is no such file.
	MP4 string `json:"mp4,omitempty"`
	// Preview is the time, as of Poster, of the segment that preview.mp4 has. Default: there is no such file.
	Preview string `json:"preview,omitempty"`
	// WatchEarly publishes a first generation with one small rendition, as soon as that is complete.
	WatchEarly bool `json:"watch_early,omitempty"`
	// FailedRendition is "skip" if a video is published without the renditions that cannot be made, or "wait" if the
	// transcode fails and waits for a retry. Default: wait.
	FailedRendition string `json:"failed_rendition,omitempty"`
	// AutomaticCaptions is the language that is spoken (ISO 639) or media.DetectLanguage, if captions are made of it once the video is
	// published. Default: none are made.
	AutomaticCaptions string `json:"automatic_captions,omitempty"`
	// Encryption is EncryptionAES128 if the segments are published encrypted. Default: they are clear.
	Encryption string `json:"encryption,omitempty"`
	// Visibility is VisibilityPublic or VisibilitySigned. Default: signed. It may change at any time, so only the task's
	// params say what it is; see [IsPublic].
	Visibility string `json:"visibility,omitempty"`
	// Requires and Prefers are labels for the placement of the transcode stage.
	Requires []string `json:"requires,omitempty"`
	Prefers  []string `json:"prefers,omitempty"`
}

// The values of Settings.Visibility: everybody can watch a public video, and a signed one only with a signed address.
const (
	VisibilityPublic = "public"
	VisibilitySigned = "signed"
)

// AudioSettings are those of all audio streams.
type AudioSettings struct {
	// Bitrate is bits per second. Default 128,000.
	Bitrate int `json:"bitrate,omitempty"`
	// Loudness is the target in LUFS. Default 0: as in the source.
	Loudness float64 `json:"loudness,omitempty"`
	// Surround adds a rendition in 5.1 of each stream that has so many channels.
	Surround bool `json:"surround,omitempty"`
	// Default is the stream that players begin with: a language, such as "de", or the number of a stream, such as "2". Default: that
	// of the source.
	Default string `json:"default,omitempty"`
}

// The ranges of settings.
const (
	minQuality, maxQuality           = 15, 40
	minAudioBitrate, maxAudioBitrate = 32_000, 320_000
	minLoudness, maxLoudness         = -40, -5
	maxTimeSeconds                   = 7 * 24 * 3600
	maxLabels                        = 20 // the limit of a store.Placement
)

// Presets are the presets of x264, the fastest first.
func Presets() []string {
	return []string{"ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo"}
}

// parser parses the value of a member into a T.
type parser[T any] func(to *T, value json.RawMessage) error

// parsers are those of the members of an object, by name. A member that is null has its default.
type parsers[T any] map[string]parser[T]

// settingMembers are the members of a profile, in the order of the documentation.
var settingMembers = []string{
	"renditions", "codecs", "hdr", "quality", "preset", "audio", "poster", "mp4", "preview", "watch_early", "failed_rendition",
	"automatic_captions", "encryption", visibilityMember, "requires", "prefers",
}

const visibilityMember = "visibility"

var settingParsers = parsers[Settings]{
	"renditions": parseRenditions,
	"codecs":     parseCodecs,
	"hdr": func(s *Settings, value json.RawMessage) error {
		if json.Unmarshal(value, &s.HDR) != nil {
			return wrongValue("hdr", value, "true or false")
		}
		return nil
	},
	"quality": func(s *Settings, value json.RawMessage) error {
		n, err := strconv.Atoi(string(value))
		if err != nil || n < minQuality || n > maxQuality {
			return wrongValue("quality", value, "a whole number from %d (best) to %d", minQuality, maxQuality)
		}
		s.Quality = n
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

// parseTime parses a number of seconds, or a text: "12.5" or "25%".
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
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n >= 0 && n <= limit) || isShare && !ok {
		return wrongValue(name, value, `a number of seconds such as 12.5, or a share of the duration such as "25%%"`)
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

// ladder returns the rungs of a source.
func (s Settings) ladder(info *media.Info) []media.Rung {
	return media.LadderWith(info, s.ladderOptions())
}

func (s Settings) ladderOptions() media.LadderOptions {
	return media.LadderOptions{
		Heights: s.Renditions, Without: s.LeftOut, Codecs: s.Codecs, HDR: s.HDR, Quality: s.Quality, Preset: s.Preset,
		Loudness: s.Audio.Loudness, AudioBitrate: s.Audio.Bitrate, Surround: s.Audio.Surround,
	}
}

// timeAt is the time in seconds that a setting says.
func timeAt(setting string, duration float64) float64 {
	number, isShare := strings.CutSuffix(setting, "%")
	n, _ := strconv.ParseFloat(number, 64) // it was parsed before
	if isShare {
		return min(n/100, 1) * duration
	}
	return n
}

// warnings are sentences about what the settings ask for and the video will not have.
func (s Settings) warnings(info *media.Info) (list []string) {
	if v := info.Video; v != nil && timeAt(s.Poster, v.Duration) > v.Duration {
		list = append(list, fmt.Sprintf("the poster is a picture of another time: %s s is after the end of the video", s.Poster))
	}
	if len(s.LeftOut) > 0 {
		list = append(list, fmt.Sprintf("%s left out: the picture has no more detail than in the next smaller size; renditions asks for it",
			strings.Join(renditionNames(s.LeftOut), ", ")))
	}
	if s.Audio.Surround && !slices.ContainsFunc(s.ladder(info), func(r media.Rung) bool { return r.Channels > 0 }) {
		list = append(list, "there is no surround sound: no audio stream has 5.1 or more channels that can be mixed")
	}
	if v := info.Video; v != nil && timeAt(s.Preview, v.Duration) > v.Duration {
		list = append(list, fmt.Sprintf("the preview is the end of the video: %s s is after it", s.Preview))
	}
	for _, a := range info.Audio {
		if missing := a.QuieterThan(s.Audio.Loudness); s.Audio.Loudness != 0 && missing >= 0.5 {
			list = append(list, fmt.Sprintf("the audio stream %d is made %.1f dB quieter than %g LUFS, because its peaks would clip",
				a.Index, missing, s.Audio.Loudness))
		}
	}
	return list
}

// String describes the settings in a few words; it is empty if all are the defaults.
func (s Settings) String() string {
	var parts []string
	add := func(isSet bool, format string, args ...any) {
		if isSet {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	var heights []string
	for _, h := range s.Renditions {
		heights = append(heights, fmt.Sprintf("%dp", h))
	}
	add(len(heights) > 0, "renditions %s", strings.Join(heights, " "))
	add(len(s.Codecs) > 0, "codecs h264 %s", strings.Join(s.Codecs, " "))
	add(s.HDR, "HDR")
	add(s.Quality > 0, "quality %d", s.Quality)
	add(s.Preset != "", "preset %s", s.Preset)
	add(s.Audio.Bitrate > 0, "audio %g kbit/s", float64(s.Audio.Bitrate)/1000)
	add(s.Audio.Loudness < 0, "loudness %g LUFS", s.Audio.Loudness)
	add(s.Audio.Surround, "surround")
	add(s.Audio.Default != "", "default audio %s", s.Audio.Default)
	add(s.Poster != "", "poster at %s", timeText(s.Poster))
	add(s.MP4 != "", "MP4 %s", s.MP4)
	add(s.Preview != "", "preview at %s", timeText(s.Preview))
	add(s.WatchEarly, "watch early")
	add(s.FailedRendition != "", "failed rendition: %s", s.FailedRendition)
	add(s.AutomaticCaptions != "", "automatic captions: %s", s.AutomaticCaptions)
	add(s.Encryption != "", "encryption %s", s.Encryption)
	add(s.Visibility != "", "visibility %s", s.Visibility)
	add(len(s.Requires) > 0, "requires %s", strings.Join(s.Requires, " "))
	add(len(s.Prefers) > 0, "prefers %s", strings.Join(s.Prefers, " "))
	return strings.Join(parts, ", ")
}

// timeText describes a time in words.
func timeText(setting string) string {
	if strings.HasSuffix(setting, "%") {
		return setting
	}
	return setting + " s"
}
