package grid

// asciiEnd is DEL, behind the last character of ASCII that is printed.
const asciiEnd = 0x7f

// A Charset is a character set that a program can have ASCII stand for.
type Charset uint8

const (
	CharsetASCII Charset = iota
	charsetGraphics
	charsetBritish
	charsetDutch
	charsetFinnish
	charsetFrench
	charsetCanadian
	charsetGerman
	charsetItalian
	charsetDanish
	charsetSpanish
	charsetSwedish
	charsetSwiss
)

// Designators are the finals of the sequences that choose a set. The first of
// each is used to choose it again.
var Designators = [...]string{"B", "0", "A", "4", "C5", "R", "Q", "K", "Y", "E6", "Z", "H7", "="}

// replacements say which characters stand for which, pair by pair.
var replacements = [...]string{
	CharsetASCII: "",
	charsetGraphics: "`◆a▒b␉c␌d␍e␊f°g±h␤i␋j┘k┐l┌m└n┼o⎺p⎻q─r⎼s⎽" +
		"t├u┤v┴w┬x│y≤z≥{π|≠}£~·",
	charsetBritish:  "#£",
	charsetDutch:    "#£@¾[i\\½]|{¨|f}¼~´", // xterm.js takes the i of ij
	charsetFinnish:  "[Ä\\Ö]Å^Ü`é{ä|ö}å~ü",
	charsetFrench:   "#£@à[°\\ç]§{é|ù}è~¨",
	charsetCanadian: "@à[â\\ç]ê^î`ô{é|ù}è~û",
	charsetGerman:   "@§[Ä\\Ö]Ü{ä|ö}ü~ß",
	charsetItalian:  "#£@§[°\\ç]é`ù{à|ò}è~ì",
	charsetDanish:   "@Ä[Æ\\Ø]Å^Ü`ä{æ|ø}å~ü",
	charsetSpanish:  "#£@§[¡\\Ñ]¿{°|ñ}ç",
	charsetSwedish:  "@É[Ä\\Ö]Å^Ü`é{ä|ö}å~ü",
	charsetSwiss:    "#ù@à[é\\ç]ê^î_è`ô{ä|ö}ü~û",
}

// charsetTables are replacements by ASCII character.
var charsetTables = func() (tables [len(replacements)][asciiEnd]rune) {
	for set := range tables {
		for c := range tables[set] {
			tables[set][c] = rune(c)
		}
		pairs := []rune(replacements[set])
		for i := 0; i < len(pairs); i += 2 {
			tables[set][pairs[i]] = pairs[i+1]
		}
	}
	return tables
}()

// Translate returns what an ASCII character stands for.
func (c Charset) Translate(b byte) rune { return charsetTables[c][b] }

// Charsets are the sets chosen. Which of them is current is kept apart since
// restoring the cursor restores that alone.
type Charsets struct {
	G       [4]Charset
	Level   uint8 // of g
	Current Charset
}

func (c *Charsets) shift(level uint8) {
	c.Level = level
	c.Current = c.G[level]
}

func (c *Charsets) designate(level uint8, set Charset) {
	c.G[level] = set
	if c.Level == level {
		c.Current = set
	}
}

// Invert returns what a program writes to get r.
func (c Charset) Invert(r rune) (written rune, ok bool) {
	if r >= asciiEnd || c.Translate(byte(r)) == r {
		return r, true
	}
	for b := byte(' '); b < asciiEnd; b++ {
		if c.Translate(b) == r {
			return rune(b), true
		}
	}
	return 0, false
}
