/* Runs a fuzz target over a corpus, as an ordinary test: each argument is a directory, each file of
 * it one input. Files of an empty or missing corpus would test nothing, so that fails. */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* Owned by the caller; NULL when the file cannot be read. Of exactly the file's size, so that a
 * read past the end is caught by the sanitizer. */
static uint8_t *read_file(const char *path, size_t *size_out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    uint8_t *data = NULL;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        data = malloc(size > 0 ? (size_t)size : 1);
        if (data != NULL && fread(data, 1, (size_t)size, file) == (size_t)size) {
            *size_out = (size_t)size;
        } else {
            free(data);
            data = NULL;
        }
    }
    (void)fclose(file); /* only read from */
    return data;
}

/* How many inputs ran; -1 when one could not be read. */
static int run_directory(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return -1;
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(dir)) != NULL;) {
        char name[4096];
        size_t size = 0;
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        uint8_t *data = read_file(name, &size);
        if (data != NULL) {
            (void)printf("%s\n", name);
            (void)LLVMFuzzerTestOneInput(data, size);
            count++;
        } else {
            (void)fprintf(stderr, "cannot read %s\n", name);
            count = -1;
        }
        free(data);
    }
    (void)closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IONBF, 0); /* the last name printed is the input that crashed */
    for (int i = 1; i < argc; i++) {
        int count = run_directory(argv[i]);
        if (count <= 0) {
            (void)fprintf(stderr, "no inputs in %s\n", argv[i]);
            return 1;
        }
        (void)printf("%d inputs in %s\n", count, argv[i]);
    }
    return argc > 1 ? 0 : 1;
}
