/* Templates, virtual calls, exceptions, a lambda that the library calls. */
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Rule {
    virtual ~Rule() = default;
    virtual int score(const std::string &word) const = 0;
};

struct Length : Rule {
    int score(const std::string &word) const override {
        if (word.size() > 9) throw std::length_error("long");
        return int(word.size());
    }
};

template <char C> struct Letter : Rule {
    int score(const std::string &word) const override {
        return int(std::count(word.begin(), word.end(), C));
    }
};

int main() {
    std::vector<std::unique_ptr<Rule>> rules;
    rules.emplace_back(new Length);
    rules.emplace_back(new Letter<'a'>);
    rules.emplace_back(new Letter<'z'>);
    std::map<std::string, int> sums;
    unsigned x = 1;
    int thrown = 0;
    for (int i = 0; i < 400; i++) {
        std::string word;
        do {
            x = x * 1103515245u + 12345u;
            word += char('a' + (x >> 16) % 26);
        } while ((x >> 20) % 8);
        for (auto &rule : rules) {
            try {
                sums[word.substr(0, 2)] += rule->score(word);
            } catch (const std::length_error &) {
                thrown++;
            }
        }
    }
    std::vector<std::pair<std::string, int>> all(sums.begin(), sums.end());
    std::sort(all.begin(), all.end(),
              [](const auto &a, const auto &b) { return a.second > b.second; });
    std::printf("%s %d %d\n", all[0].first.c_str(), all[0].second, thrown);
}
