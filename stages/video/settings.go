package video

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/internal/media"
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
	// Copy copies the picture of a source that fits one of the renditions in H.264, instead of encoding it for that one.
	Copy bool `json:"copy,omitempty"`
	// Quality is the CRF and Preset is x264's. Default: those of the worker. Ingest replaces AutoQuality by a CRF.
	Quality Quality `json:"quality,omitempty"`
	Preset  string  `json:"preset,omitempty"`
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

// Quality is a CRF; 0 is that of the worker.
type Quality int

// AutoQuality is a CRF that ingest chooses for the video, see media.Tools.AutoQuality. In JSON it is "auto".
const AutoQuality Quality = -1

// MarshalJSON writes a number, or "auto".
func (q Quality) MarshalJSON() ([]byte, error) {
	if q == AutoQuality {
		return json.Marshal(autoQuality)
	}
	return json.Marshal(int(q))
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

// ladder returns the rungs of a source.
func (s Settings) ladder(info *media.Info) []media.Rung {
	return media.LadderWith(info, s.ladderOptions())
}

func (s Settings) ladderOptions() media.LadderOptions {
	return media.LadderOptions{
		Heights: s.Renditions, LeftOut: s.LeftOut, Codecs: s.Codecs, HDR: s.HDR, Quality: int(max(0, s.Quality)), Preset: s.Preset,
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
	if s.Encryption != "" && (s.MP4 != "" || s.Preview != "" || s.AutomaticCaptions != "") {
		list = append(list, "there is no MP4 file, no preview and no automatic captions: the video is encrypted")
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
	add(s.Copy, "copy")
	add(s.Quality > 0, "quality %d", s.Quality)
	add(s.Quality == AutoQuality, "quality auto")
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
