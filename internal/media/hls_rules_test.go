package media

import (
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// hlsTag is a tag of a playlist with its attributes, or its value under "", and the line after it if that is an address.
type hlsTag struct {
	name       string
	attributes map[string]string
	address    string
}

var hlsAttribute = regexp.MustCompile(`([A-Z0-9-]+)=("[^"]*"|[^,]*)`)

func readHLS(t *testing.T, file string) (tags []hlsTag) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "#") {
			tags[len(tags)-1].address = line
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		tag := hlsTag{name: name, attributes: map[string]string{"": strings.TrimSuffix(value, ",")}}
		for _, a := range hlsAttribute.FindAllStringSubmatch(value, -1) {
			tag.attributes[a[1]] = strings.Trim(a[2], `"`)
		}
		tags = append(tags, tag)
	}
	return tags
}

// hlsMedia is what a media playlist says, and what its segments are.
type hlsMedia struct {
	seconds, longest, target float64
	bytes                    int64
	peak                     float64 // bits per second of a segment
	has                      map[string]bool
}

func readHLSMedia(t *testing.T, dir, name string) hlsMedia {
	t.Helper()
	m := hlsMedia{has: make(map[string]bool)}
	for _, tag := range readHLS(t, filepath.Join(dir, name)) {
		m.has[tag.name] = true
		switch tag.name {
		case "#EXT-X-TARGETDURATION":
			m.target = number(t, tag.attributes[""])
		case "#EXTINF":
			seconds := number(t, tag.attributes[""])
			st, err := os.Stat(filepath.Join(dir, path.Dir(name), tag.address))
			if err != nil {
				t.Fatal(err)
			}
			m.seconds, m.longest, m.bytes = m.seconds+seconds, max(m.longest, seconds), m.bytes+st.Size()
			if seconds >= m.target/2 { // shorter ones are no peak
				m.peak = max(m.peak, float64(8*st.Size())/seconds)
			}
		}
	}
	return m
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkHLSRules checks what RFC 8216 and the HLS authoring specification demand of a video on demand.
func checkHLSRules(t *testing.T, dir string) {
	t.Helper()
	groups, variants, pictures := make(map[string][]hlsTag), 0, make(map[string]bool)
	media := make(map[string]hlsMedia)
	tags := readHLS(t, filepath.Join(dir, MasterName))
	for _, tag := range tags {
		a := tag.attributes
		if tag.name == "#EXT-X-MEDIA" {
			groups[a["TYPE"]+" "+a["GROUP-ID"]] = append(groups[a["TYPE"]+" "+a["GROUP-ID"]], tag)
		}
		if name := tag.address + a["URI"]; strings.HasSuffix(name, playlistName) {
			media[name] = readHLSMedia(t, dir, name)
		}
	}
	for _, tag := range tags {
		switch tag.name {
		case "#EXT-X-STREAM-INF":
			checkHLSVariant(t, tag, variants == 0, media, groups)
			variants++
		case "#EXT-X-I-FRAME-STREAM-INF":
			pictures[fmt.Sprint(tag.attributes["CODECS"], tag.attributes["RESOLUTION"], tag.attributes["VIDEO-RANGE"])] = true
		}
	}
	for _, tag := range tags {
		video, _, _ := strings.Cut(tag.attributes["CODECS"], ",")
		if tag.name == "#EXT-X-STREAM-INF" && tag.attributes["RESOLUTION"] != "" &&
			!pictures[fmt.Sprint(video, tag.attributes["RESOLUTION"], tag.attributes["VIDEO-RANGE"])] {
			t.Errorf("%s has no I-frame playlist", tag.address)
		}
	}
	for name, list := range groups {
		names, defaults := make(map[string]bool), 0
		for _, tag := range list {
			if names[tag.attributes["NAME"]] {
				t.Errorf("the group %s has two renditions called %q", name, tag.attributes["NAME"])
			}
			names[tag.attributes["NAME"]] = true
			if tag.attributes["DEFAULT"] == "YES" {
				defaults++
			}
		}
		if defaults > 1 {
			t.Errorf("the group %s has %d defaults", name, defaults)
		}
	}
	for name, m := range media {
		for _, tag := range []string{"#EXT-X-ENDLIST", "#EXT-X-MAP", "#EXT-X-PLAYLIST-TYPE", "#EXT-X-INDEPENDENT-SEGMENTS"} {
			if !m.has[tag] {
				t.Errorf("%s has no %s", name, tag)
			}
		}
		if math.Round(m.longest) > m.target || m.has["#EXT-X-DISCONTINUITY"] {
			t.Errorf("%s has a segment of %g s; the target is %g s", name, m.longest, m.target)
		}
	}
	if variants == 0 {
		t.Error("there is no variant")
	}
}

func checkHLSVariant(t *testing.T, tag hlsTag, isFirst bool, media map[string]hlsMedia, groups map[string][]hlsTag) {
	t.Helper()
	a, own := tag.attributes, media[tag.address]
	if own.bytes == 0 || a["CODECS"] == "" {
		t.Errorf("the variant %+v has no segments or no codecs", tag)
		return
	}
	isVideo := a["RESOLUTION"] != ""
	if isVideo && isFirst && !strings.HasPrefix(a["CODECS"], "avc1") {
		t.Errorf("the first variant is %s; players that know only H.264 begin with it", a["CODECS"])
	}
	if rate := a["FRAME-RATE"]; isVideo && (number(t, rate) <= 0 || number(t, rate) > 61 || a["VIDEO-RANGE"] == "") {
		t.Errorf("%s has the frame rate %s and the range %q", tag.address, rate, a["VIDEO-RANGE"])
	}
	peak, average := own.peak, float64(8*own.bytes)/own.seconds
	if name := a["AUDIO"]; name != "" && isVideo {
		list := groups["AUDIO "+name]
		if len(list) == 0 {
			t.Errorf("%s names the group %q, which is not there", tag.address, name)
		}
		soundPeak, soundAverage := 0.0, 0.0
		for _, sound := range list {
			m := media[sound.attributes["URI"]]
			soundPeak, soundAverage = max(soundPeak, m.peak), max(soundAverage, float64(8*m.bytes)/m.seconds)
		}
		peak, average = peak+soundPeak, average+soundAverage
	}
	saidPeak, saidAverage := number(t, a["BANDWIDTH"]), number(t, a["AVERAGE-BANDWIDTH"])
	if saidPeak < 0.999*peak || saidAverage > saidPeak || math.Abs(saidAverage-average) > 0.1*average {
		t.Errorf("%s says %g and %g bit/s, but has %.0f at most and %.0f on average", tag.address, saidPeak, saidAverage, peak, average)
	}
}
