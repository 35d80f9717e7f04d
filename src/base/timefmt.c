/* Calendar arithmetic without the C library's: days from and to civil dates after Howard Hinnant,
 * "chrono-Compatible Low-Level Date Algorithms" (years start in March, eras of 400 years). */
#include "base/timefmt.h"

struct date {
    int64_t year;
    unsigned month; /* 1..12 */
    unsigned day;   /* 1..31 */
};

#define DAYS_PER_ERA 146097 /* 400 years */
#define DAYS_TO_1970 719468 /* from 0000-03-01 */

int64_t time_floor(int64_t us, int64_t unit_us)
{
    ASSERT(unit_us > 0);
    int64_t rest = us % unit_us;
    if (rest < 0)
        rest += unit_us;
    ASSERT(us >= INT64_MIN + rest);
    return us - rest;
}

static int64_t floor_div(int64_t value, int64_t unit)
{
    return value / unit - (value % unit < 0 ? 1 : 0);
}

static struct date date_of_days(int64_t days)
{
    days += DAYS_TO_1970;
    int64_t era = floor_div(days, DAYS_PER_ERA);
    unsigned doe = (unsigned)(days - era * DAYS_PER_ERA); /* day of era */
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100); /* from 1 March */
    unsigned mp = (5 * doy + 2) / 153;                      /* months from March */
    unsigned month = mp < 10 ? mp + 3 : mp - 9;
    return (struct date){
        .year = (int64_t)yoe + era * 400 + (month <= 2 ? 1 : 0),
        .month = month,
        .day = doy - (153 * mp + 2) / 5 + 1,
    };
}

static int64_t days_of_date(struct date date)
{
    int64_t year = date.year - (date.month <= 2 ? 1 : 0);
    int64_t era = floor_div(year, 400);
    unsigned yoe = (unsigned)(year - era * 400);
    unsigned doy =
        (153 * (date.month > 2 ? date.month - 3 : date.month + 9) + 2) / 5 + date.day - 1;
    unsigned doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return era * DAYS_PER_ERA + (int64_t)doe - DAYS_TO_1970;
}

static unsigned days_in_month(int64_t year, unsigned month)
{
    static const uint8_t days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

void buf_put_date(struct buf *b, int64_t us)
{
    struct date date = date_of_days(floor_div(us, US_PER_DAY));
    if (date.year < 0)
        buf_putc(b, '-');
    buf_put_padded(b, (uint64_t)(date.year < 0 ? -date.year : date.year), 4);
    buf_putc(b, '-');
    buf_put_padded(b, date.month, 2);
    buf_putc(b, '-');
    buf_put_padded(b, date.day, 2);
}

/* Microseconds since midnight. */
static uint64_t time_of_day(int64_t us)
{
    int64_t rest = us % US_PER_DAY;
    return (uint64_t)(rest < 0 ? rest + US_PER_DAY : rest);
}

void buf_put_hour(struct buf *b, int64_t us)
{
    buf_put_padded(b, time_of_day(us) / US_PER_HOUR, 2);
}

static void put_seconds(struct buf *b, int64_t us)
{
    uint64_t seconds = time_of_day(us) / US_PER_SEC;
    buf_put_date(b, us);
    buf_putc(b, 'T');
    buf_put_padded(b, seconds / 3600, 2);
    buf_putc(b, ':');
    buf_put_padded(b, seconds / 60 % 60, 2);
    buf_putc(b, ':');
    buf_put_padded(b, seconds % 60, 2);
}

void buf_put_iso_us(struct buf *b, int64_t us)
{
    put_seconds(b, us);
    buf_putc(b, '.');
    buf_put_padded(b, time_of_day(us) % US_PER_SEC, 6);
    buf_putc(b, 'Z');
}

void buf_put_iso_ms(struct buf *b, int64_t us)
{
    put_seconds(b, us);
    buf_putc(b, '.');
    buf_put_padded(b, time_of_day(us) % US_PER_SEC / 1000, 3);
    buf_putc(b, 'Z');
}

void buf_put_iso_kv(struct buf *b, int64_t us)
{
    put_seconds(b, us);
    uint64_t fraction = time_of_day(us) % US_PER_SEC;
    if (fraction > 0) {
        unsigned width = 6;
        for (; fraction % 10 == 0; fraction /= 10)
            width--;
        buf_putc(b, '.');
        buf_put_padded(b, fraction, width);
    }
    buf_puts(b, "+00:00");
}

/* Takes exactly `count` digits off the front. */
static bool take_digits(struct span *text, unsigned count, unsigned *out)
{
    unsigned value = 0;
    if (text->len < count)
        return false;
    for (unsigned i = 0; i < count; i++) {
        uint8_t c = text->ptr[i];
        if (c < '0' || c > '9')
            return false;
        value = value * 10 + (unsigned)(c - '0');
    }
    *text = span_sub(*text, count, text->len);
    *out = value;
    return true;
}

static bool take_char(struct span *text, char c)
{
    if (text->len == 0 || text->ptr[0] != (uint8_t)c)
        return false;
    *text = span_sub(*text, 1, text->len);
    return true;
}

static bool take_date(struct span *text, int64_t *days_out)
{
    unsigned year;
    struct date date;
    if (!take_digits(text, 4, &year) || !take_char(text, '-') ||
        !take_digits(text, 2, &date.month) || !take_char(text, '-') ||
        !take_digits(text, 2, &date.day))
        return false;
    date.year = year;
    if (date.month < 1 || date.month > 12 || date.day < 1 ||
        date.day > days_in_month(date.year, date.month))
        return false;
    *days_out = days_of_date(date);
    return true;
}

/* HH:MM, as both the time of day and a zone's offset start. */
static bool take_minutes(struct span *text, int64_t *us_out)
{
    unsigned hour;
    unsigned minute;
    if (!take_digits(text, 2, &hour) || !take_char(text, ':') || !take_digits(text, 2, &minute) ||
        hour > 23 || minute > 59)
        return false;
    *us_out = hour * US_PER_HOUR + minute * (60 * US_PER_SEC);
    return true;
}

/* Digits after the point, at least one; those beyond the sixth are cut. */
static bool take_fraction(struct span *text, int64_t *us_out)
{
    int64_t value = 0;
    int64_t unit = US_PER_SEC;
    unsigned digit;
    if (!take_digits(text, 1, &digit))
        return false;
    do {
        unit /= 10;
        value += digit * unit;
    } while (take_digits(text, 1, &digit));
    *us_out = value;
    return true;
}

/* :SS and a fraction, both optional. */
static bool take_seconds(struct span *text, int64_t *us_out)
{
    unsigned second;
    int64_t fraction = 0;
    if (!take_char(text, ':')) {
        *us_out = 0;
        return true;
    }
    if (!take_digits(text, 2, &second) || second > 59)
        return false;
    if (take_char(text, '.') && !take_fraction(text, &fraction))
        return false;
    *us_out = second * US_PER_SEC + fraction;
    return true;
}

/* Z, +HH:MM, -HH:MM or nothing: what to subtract. */
static bool take_zone(struct span *text, int64_t *us_out)
{
    int64_t offset;
    *us_out = 0;
    if (text->len == 0 || take_char(text, 'Z'))
        return true;
    bool west = take_char(text, '-');
    if ((!west && !take_char(text, '+')) || !take_minutes(text, &offset))
        return false;
    *us_out = west ? -offset : offset;
    return true;
}

bool time_parse_iso(struct span text, int64_t *us_out)
{
    int64_t days;
    int64_t minutes = 0;
    int64_t seconds = 0;
    int64_t zone = 0;
    if (!take_date(&text, &days))
        return false;
    if (take_char(&text, 'T') && (!take_minutes(&text, &minutes) ||
                                  !take_seconds(&text, &seconds) || !take_zone(&text, &zone)))
        return false;
    if (text.len > 0)
        return false;
    *us_out = days * US_PER_DAY + minutes + seconds - zone;
    return true;
}
